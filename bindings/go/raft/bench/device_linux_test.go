package bench

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"unsafe"
)

// BenchmarkDevice measures what the device takes for a durable write of 4 KiB, in two ways, to a file whose
// blocks were written before. No store that keeps its promise is faster for long.
func BenchmarkDevice(b *testing.B) {
	b.Run("direct, dsync", func(b *testing.B) {
		durable(b, syscall.O_DIRECT|syscall.O_DSYNC, func(int) error { return nil })
	})
	b.Run("write, fdatasync", func(b *testing.B) { durable(b, 0, syscall.Fdatasync) })
}

func durable(b *testing.B, flags int, sync func(fd int) error) {
	const block, blocks = 4 << 10, 4 << 10
	dir, err := os.MkdirTemp(".", "device")
	must(b, err)
	b.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "file")
	must(b, os.WriteFile(path, make([]byte, block*blocks), 0o600))
	fd, err := syscall.Open(path, syscall.O_WRONLY|flags, 0)
	must(b, err)
	b.Cleanup(func() { must(b, syscall.Close(fd)) })
	must(b, syscall.Fsync(fd))
	room := make([]byte, 2*block)
	aligned := room[block-int(uintptr(unsafe.Pointer(&room[0]))%block):][:block]
	b.ResetTimer()
	for n := range b.N {
		aligned[n%block]++ // Bytes that stay the same prove nothing.
		_, err := syscall.Pwrite(fd, aligned, int64(n%blocks)*block)
		must(b, err)
		must(b, sync(fd))
	}
}
