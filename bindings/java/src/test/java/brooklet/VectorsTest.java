package brooklet;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import com.google.gson.JsonPrimitive;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HexFormat;
import java.util.List;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import java.util.stream.StreamSupport;
import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.TestFactory;
import org.junit.jupiter.api.io.TempDir;

/** Plays ../vectors/vectors.json. The other libraries play the same file. */
class VectorsTest {
    private static final List<String> OPERATIONS = List.of(
            "append", "snapshot", "trim", "truncate", "keep_last", "begin_at", "delete", "set_retention", "expect_next",
            "expect_absent");

    @TempDir
    Path folder;

    @TestFactory
    Stream<DynamicTest> vectors() throws Exception {
        JsonArray cases = JsonParser.parseString(Files.readString(Path.of("../vectors/vectors.json"))).getAsJsonArray();
        return all(cases).map(one -> {
            JsonObject of = one.getAsJsonObject();
            String name = of.get("name").getAsString();
            return DynamicTest.dynamicTest(name, () -> playAll(folder.resolve(name + ".brooklet"), of));
        });
    }

    private static void playAll(Path path, JsonObject of) throws Exception {
        try (Player player = new Player(path)) {
            for (JsonElement one : of.getAsJsonArray("steps")) {
                JsonObject step = one.getAsJsonObject();
                JsonObject played = new JsonObject();
                try {
                    player.play(step, played);
                } catch (BrookletException e) {
                    played = new JsonObject();
                    played.add("error", outline(e));
                }
                assertEquals(expected(step), played, step::toString);
            }
        }
    }

    /** A store, and the tail that is open. */
    private static final class Player implements AutoCloseable {
        private final Path path;
        private Store store;
        private Collector tail;

        Player(Path path) {
            this.path = path;
            open(new JsonObject());
        }

        private void open(JsonObject how) {
            close();
            Options options = Stores.small().readOnly(how.has("read_only"));
            if (how.has("create")) {
                options.create(Options.Create.valueOf(how.get("create").getAsString().toUpperCase()));
            }
            store = Store.open(path, options);
        }

        /** Plays a step, and adds what the store returned, in the form of the file. */
        void play(JsonObject step, JsonObject played) throws Exception {
            if (step.has("reopen")) {
                open(step.getAsJsonObject("reopen"));
            } else if (step.has("call")) {
                OptionalLong seq = call(step.getAsJsonObject("call"));
                if (step.has("seq")) {
                    played.addProperty("seq", seq.orElseThrow());
                }
            } else if (step.has("commit")) {
                Commit commit = new Commit();
                all(step.getAsJsonArray("commit")).forEach(operation -> add(commit, operation.getAsJsonObject()));
                JsonArray seqs = new JsonArray();
                for (long seq : store.commit(commit).seqs()) {
                    seqs.add(seq);
                }
                played.add("seqs", seqs);
            } else if (step.has("read")) {
                played.add("entries", read(step));
            } else if (step.has("bounds")) {
                Bounds bounds = store.bounds(key(step.get("bounds")));
                played.addProperty("first", bounds.first());
                played.addProperty("next", bounds.next());
            } else if (step.has("scan")) {
                played.add("logs", scan(step));
            } else if (step.has("tail")) {
                follow(step);
            } else if (step.has("event")) {
                tail.subscription.get().request(1);
                played.add("event", plain(tail.events.poll(1, TimeUnit.MINUTES)));
            } else if (step.has("flush")) {
                store.flush();
            } else if (step.has("checkpoint")) {
                store.checkpoint();
            } else {
                store.close();
            }
        }

        private OptionalLong call(JsonObject operation) throws InterruptedException {
            String name = name(operation);
            Key key = key(operation.get(name));
            switch (name) {
                case "append" -> {
                    return OptionalLong.of(store.append(key, bytes(operation.get("payload"))));
                }
                case "snapshot" -> {
                    return OptionalLong.of(store.snapshot(key, bytes(operation.get("payload"))));
                }
                case "trim" -> store.trim(key, number(operation, "before"));
                case "truncate" -> store.truncate(key, number(operation, "from"));
                case "keep_last" -> store.keepLast(key, number(operation, "n"));
                case "begin_at" -> store.beginAt(key, number(operation, "first"));
                case "delete" -> store.delete(key);
                default -> store.setRetention(key, Retention.ALL.entries(number(operation, "entries")));
            }
            return OptionalLong.empty();
        }

        private JsonArray read(JsonObject step) {
            Key key = key(step.get("read"));
            long from = number(step, "from");
            long to = step.has("to") ? number(step, "to") : Store.END;
            JsonArray entries = new JsonArray();
            try (Items<Entry> items = step.has("available") ? store.readAvailable(key, from, to) : store.read(key, from, to)) {
                items.forEach(entry -> entries.add(plain(entry.seq(), entry.payload())));
            }
            return entries;
        }

        private JsonArray scan(JsonObject step) {
            Key prefix = key(step.get("scan"));
            JsonArray logs = new JsonArray();
            try (Items<LogInfo> items = step.has("start") ? store.scan(prefix, key(step.get("start"))) : store.scan(prefix)) {
                items.forEach(log -> logs.add(plain(log.key().bytes(), log.bounds().first(), log.bounds().next())));
            }
            return logs;
        }

        private void follow(JsonObject step) throws Exception {
            endTail();
            tail = new Collector();
            store.tail(key(step.get("tail")), number(step, "from")).subscribe(tail);
        }

        private void endTail() {
            Optional.ofNullable(tail).ifPresent(open -> open.subscription.join().cancel());
            tail = null;
        }

        @Override
        public void close() {
            endTail();
            Optional.ofNullable(store).ifPresent(Store::close);
        }
    }

    private static void add(Commit commit, JsonObject operation) {
        String name = name(operation);
        Key key = key(operation.get(name));
        switch (name) {
            case "append" -> commit.append(key, bytes(operation.get("payload")));
            case "snapshot" -> commit.snapshot(key, bytes(operation.get("payload")));
            case "trim" -> commit.trim(key, number(operation, "before"));
            case "truncate" -> commit.truncate(key, number(operation, "from"));
            case "keep_last" -> commit.keepLast(key, number(operation, "n"));
            case "begin_at" -> commit.beginAt(key, number(operation, "first"));
            case "delete" -> commit.delete(key);
            case "set_retention" -> commit.setRetention(key, Retention.ALL.entries(number(operation, "entries")));
            case "expect_next" -> commit.expectNext(key, number(operation, "next"));
            default -> commit.expectAbsent(key);
        }
    }

    private static String name(JsonObject operation) {
        return OPERATIONS.stream().filter(operation::has).findFirst().orElseThrow();
    }

    private static JsonObject outline(BrookletException e) {
        JsonObject outline = new JsonObject();
        String name = e instanceof StoppedException ? "Stopped" : e.getClass().getSimpleName().replace("Exception", "");
        outline.addProperty("kind", name.replaceAll("(?<=[a-z])(?=[A-Z])", "_").toLowerCase());
        e.first().ifPresent(first -> outline.addProperty("first", first));
        e.next().ifPresent(next -> outline.addProperty("next", next));
        return outline;
    }

    /** The results that a step names, with bytes as hexadecimal digits. */
    private static JsonObject expected(JsonObject step) {
        JsonObject expected = new JsonObject();
        List<String> names = step.has("bounds") ? List.of("first", "next", "error") : List.of("seq", "seqs", "error");
        names.stream().filter(step::has).forEach(name -> expected.add(name, step.get(name)));
        for (String name : List.of("entries", "logs")) {
            JsonArray rows = new JsonArray();
            if (step.has(name)) {
                all(step.getAsJsonArray(name)).forEach(row -> rows.add(plain(row.getAsJsonArray())));
                expected.add(name, rows);
            }
        }
        if (step.has("event")) {
            JsonObject event = step.getAsJsonObject("event").deepCopy();
            if (event.has("entry")) {
                event.add("entry", plain(event.getAsJsonArray("entry")));
            }
            expected.add("event", event);
        }
        return expected;
    }

    /** Returns a row of the file with its key or payload in hexadecimal digits. */
    private static JsonArray plain(JsonArray row) {
        JsonArray plain = new JsonArray();
        all(row).forEach(cell -> {
            boolean isNumber = cell instanceof JsonPrimitive primitive && primitive.isNumber();
            plain.add(isNumber ? cell : new JsonPrimitive(hex(bytes(cell))));
        });
        return plain;
    }

    private static JsonArray plain(long seq, byte[] payload) {
        JsonArray row = new JsonArray();
        row.add(seq);
        row.add(hex(payload));
        return row;
    }

    private static JsonArray plain(byte[] key, long first, long next) {
        JsonArray row = new JsonArray();
        row.add(hex(key));
        row.add(first);
        row.add(next);
        return row;
    }

    private static JsonObject plain(TailEvent event) {
        assertNotNull(event);
        JsonObject plain = new JsonObject();
        if (event instanceof Entry entry) {
            plain.add("entry", plain(entry.seq(), entry.payload()));
        } else if (event instanceof TailEvent.Trimmed gap) {
            JsonArray numbers = new JsonArray();
            numbers.add(gap.from());
            numbers.add(gap.to());
            plain.add("trimmed", numbers);
        } else if (event instanceof TailEvent.Truncated truncated) {
            plain.addProperty("truncated", truncated.from());
        } else {
            plain.addProperty("deleted", true);
        }
        return plain;
    }

    private static Stream<JsonElement> all(JsonArray array) {
        return StreamSupport.stream(array.spliterator(), false);
    }

    private static long number(JsonObject object, String name) {
        return object.get(name).getAsLong();
    }

    private static Key key(JsonElement value) {
        return Key.of(bytes(value));
    }

    /** The bytes that a value stands for: text, hexadecimal digits, or a repeated text. */
    private static byte[] bytes(JsonElement value) {
        if (value.isJsonPrimitive()) {
            return value.getAsString().getBytes(StandardCharsets.UTF_8);
        }
        JsonObject object = value.getAsJsonObject();
        return object.has("hex")
                ? HexFormat.of().parseHex(object.get("hex").getAsString())
                : object.get("repeat").getAsString().repeat((int) number(object, "times")).getBytes(StandardCharsets.UTF_8);
    }

    private static String hex(byte[] bytes) {
        return HexFormat.of().formatHex(bytes);
    }
}
