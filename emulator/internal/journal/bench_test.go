package journal

import (
	"encoding/binary"
	"path/filepath"
	"sync/atomic"
	"testing"

	"go.etcd.io/bbolt"
)

// BenchmarkDurable makes records of 100 bytes durable for many callers at once, in a journal
// and in bbolt.
func BenchmarkDurable(b *testing.B) {
	record := make([]byte, 100)
	b.Run("journal", func(b *testing.B) {
		j, err := Open(b.TempDir(), true, func([]byte) error { return nil })
		if err != nil {
			b.Fatal(err)
		}
		b.SetParallelism(32)
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if err := j.Wait(j.Append(func(to []byte) []byte { return append(to, record...) })); err != nil {
					b.Error(err)
				}
			}
		})
		if err := j.Close(); err != nil {
			b.Fatal(err)
		}
	})
	b.Run("bbolt", func(b *testing.B) {
		db, err := bbolt.Open(filepath.Join(b.TempDir(), "db"), 0o600, nil)
		if err != nil {
			b.Fatal(err)
		}
		name := []byte("records")
		if err := db.Update(func(tx *bbolt.Tx) error { _, err := tx.CreateBucket(name); return err }); err != nil {
			b.Fatal(err)
		}
		var last atomic.Uint64
		b.SetParallelism(32)
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				key := binary.BigEndian.AppendUint64(nil, last.Add(1))
				if err := db.Batch(func(tx *bbolt.Tx) error { return tx.Bucket(name).Put(key, record) }); err != nil {
					b.Error(err)
				}
			}
		})
		if err := db.Close(); err != nil {
			b.Fatal(err)
		}
	})
}
