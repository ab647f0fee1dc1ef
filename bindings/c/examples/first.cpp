// The C library from C++: handles that free themselves, and errors that are thrown.

#include <iostream>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>

#include "brooklet.h"

template <auto Free>
struct Freed {
    template <typename T>
    void operator()(T *handle) const { Free(handle); }
};
using Store = std::unique_ptr<brooklet_store, Freed<brooklet_store_free>>;
using Entries = std::unique_ptr<brooklet_entries, Freed<brooklet_entries_free>>;

// Calls `call` with a place for its error, and throws the error.
template <typename Call>
brooklet_status must(Call call) {
    brooklet_error *error = nullptr;
    brooklet_status status = call(&error);
    std::string message = brooklet_error_message(error);
    brooklet_error_free(error);
    if (status > BROOKLET_OK) throw std::runtime_error(message);
    return status;
}

int main(int argc, char **argv) try {
    const char *path = argc > 1 ? argv[1] : "documents.brooklet";
    brooklet_store *opened = nullptr;
    must([&](auto error) { return brooklet_open(path, nullptr, &opened, error); });
    Store store(opened);

    std::string_view key = "doc/7", payload = "insert 'h' at 0";
    must([&](auto error) {
        return brooklet_append_wait(
            store.get(), key.data(), key.size(), payload.data(), payload.size(), nullptr, error);
    });

    brooklet_entries *read = nullptr;
    must([&](auto error) {
        return brooklet_read(store.get(), key.data(), key.size(), 0, UINT64_MAX, false, &read, error);
    });
    Entries entries(read);
    brooklet_entry entry;
    while (must([&](auto error) { return brooklet_entries_next(entries.get(), &entry, error); }) == BROOKLET_OK) {
        std::string_view text(reinterpret_cast<const char *>(entry.payload), entry.payload_len);
        std::cout << entry.seq << ": " << text << '\n';
    }
    must([&](auto error) { return brooklet_close(store.get(), error); });
    return 0;
} catch (const std::exception &error) {
    std::cerr << error.what() << '\n';
    return 1;
}
