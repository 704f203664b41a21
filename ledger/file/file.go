// Package file guarantees that several processes on one machine share a ledger in
// one file: every call opens the file, holds its lock for one transaction and
// closes it, so that no process keeps another out for longer than that. Its clock
// is the machine's. What is committed is on the disk.
package file

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/bigtable-functions/bigtable-functions/ledger"
)

// Buckets. The number in the name is that of the format.
var (
	documents = []byte("documents.1") // collection, 0, id → record
	expiries  = []byte("expiries.1")  // expiry in microseconds, key of documents → nothing
)

const (
	// lockTry is the shortest timeout that bbolt has; it then tries the lock once.
	lockTry = time.Nanosecond
	// lockWait is about how long to wait between two tries of a lock that another
	// process holds.
	lockWait = 2 * time.Millisecond
	// lockTimeout bounds the wait: a transaction takes milliseconds, so a lock that is
	// held for so long is held by something that hangs.
	lockTimeout = 30 * time.Second
	// sweep is how many expired documents one commit deletes at most.
	sweep = 100
)

// Store keeps a ledger in a file. It is safe for concurrent use and holds nothing
// open between calls.
type Store struct {
	path     string
	readOnly bool
	turn     chan struct{} // full while a call of this process has the file
}

// Open returns the store in the file at path, which it creates where it is not
// there, in a directory that is. Only the owner can read it: it holds row keys.
func Open(ctx context.Context, path string) (*Store, error) {
	s := &Store{path: path, turn: make(chan struct{}, 1)}
	if dir := filepath.Dir(path); isMissing(dir) {
		return nil, fmt.Errorf("creating the ledger %s: its directory %s does not exist", path, dir)
	}
	if err := s.transact(ctx, true, prepare); err != nil {
		return nil, err
	}
	return s, nil
}

func isMissing(path string) bool {
	_, err := os.Stat(path)
	return errors.Is(err, fs.ErrNotExist)
}

// OpenToRead returns the store in the file at path, which it neither creates nor
// changes: every commit fails. Where there is no file, or one that holds nothing yet
// because its creation was interrupted, the error is fs.ErrNotExist.
func OpenToRead(ctx context.Context, path string) (*Store, error) {
	s := &Store{path: path, turn: make(chan struct{}, 1), readOnly: true}
	switch info, err := os.Stat(path); {
	case err != nil:
		return nil, fmt.Errorf("opening the ledger: %w", err)
	case info.Size() == 0:
		return nil, fmt.Errorf("opening the ledger: %w", &fs.PathError{Op: "read", Path: path, Err: fs.ErrNotExist})
	}
	if err := s.transact(ctx, false, s.begun); err != nil {
		return nil, err
	}
	return s, nil
}

// begun is an error where the file is no ledger, and fs.ErrNotExist where it is not one yet.
func (s *Store) begun(tx *bbolt.Tx) error {
	if first, _ := tx.Cursor().First(); first == nil {
		return fmt.Errorf("opening the ledger %s: %w", s.path, fs.ErrNotExist)
	}
	if ready(tx) != nil {
		return fmt.Errorf("opening the ledger %s: it holds something else", s.path)
	}
	return nil
}

// prepare makes a new file a ledger.
func prepare(tx *bbolt.Tx) error {
	for _, name := range [][]byte{documents, expiries} {
		if _, err := tx.CreateBucketIfNotExists(name); err != nil {
			return err
		}
	}
	return nil
}

// ready is an error where the file was deleted, or put in another's place, since
// Open.
func ready(tx *bbolt.Tx) error {
	if tx.Bucket(documents) == nil || tx.Bucket(expiries) == nil {
		return errors.New("the file is no longer the ledger that was opened")
	}
	return nil
}

// Get implements ledger.Store.
func (s *Store) Get(ctx context.Context, keys ...ledger.Key) ([]ledger.Doc, error) {
	docs := make([]ledger.Doc, len(keys))
	err := s.transact(ctx, false, ready, func(tx *bbolt.Tx) error {
		now := clock()
		for i, key := range keys {
			docs[i] = decode(key, tx.Bucket(documents).Get(encodeKey(key)), now)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return docs, nil
}

// List implements ledger.Store.
func (s *Store) List(ctx context.Context, each func(ledger.Doc) error, collections ...string) error {
	return s.transact(ctx, false, ready, func(tx *bbolt.Tx) error {
		now := clock()
		for _, collection := range collections {
			prefix := encodeKey(ledger.Key{Collection: collection})
			c := tx.Bucket(documents).Cursor()
			for k, v := c.Seek(prefix); bytes.HasPrefix(k, prefix); k, v = c.Next() {
				if err := ctx.Err(); err != nil {
					return err
				}
				key := ledger.Key{Collection: collection, ID: string(k[len(prefix):])}
				if err := each(decode(key, v, now)); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// Commit implements ledger.Store.
func (s *Store) Commit(ctx context.Context, writes []ledger.Write) ([]string, error) {
	if err := ledger.CheckLimits(writes); err != nil {
		return nil, err
	}
	versions := make([]string, len(writes))
	err := s.transact(ctx, true, ready, func(tx *bbolt.Tx) error {
		docs, now := tx.Bucket(documents), clock()
		for _, w := range writes {
			if decode(w.Key, docs.Get(encodeKey(w.Key)), now).Version != w.Version {
				return ledger.ErrConflict
			}
		}
		// A random number is never one that was before, also if the file has been replaced by
		// an older copy of it meanwhile, after which a sequence would go back.
		version := rand.Uint64()
		for i, w := range writes {
			if w.Op == ledger.OpPut {
				versions[i] = strconv.FormatUint(version, 10)
			}
			if err := write(tx, w, version, now); err != nil {
				return err
			}
		}
		return deleteExpired(tx, now)
	})
	if err != nil {
		return nil, err
	}
	return versions, nil
}

func write(tx *bbolt.Tx, w ledger.Write, version uint64, now time.Time) error {
	if w.Op == ledger.OpCheck {
		return nil
	}
	docs, key := tx.Bucket(documents), encodeKey(w.Key)
	if old := decode(w.Key, docs.Get(key), now); !old.ExpireAt.IsZero() {
		if err := tx.Bucket(expiries).Delete(expiryKey(old.ExpireAt, key)); err != nil {
			return err
		}
	}
	if w.Op == ledger.OpDelete {
		return docs.Delete(key)
	}
	if !w.ExpireAt.IsZero() {
		if err := tx.Bucket(expiries).Put(expiryKey(w.ExpireAt, key), nil); err != nil {
			return err
		}
	}
	return docs.Put(key, encode(w, version, now))
}

func deleteExpired(tx *bbolt.Tx, now time.Time) error {
	var gone [][]byte
	until := expiryKey(now, nil)
	c := tx.Bucket(expiries).Cursor()
	for k, _ := c.First(); k != nil && bytes.Compare(k, until) < 0 && len(gone) < sweep; k, _ = c.Next() {
		gone = append(gone, bytes.Clone(k))
	}
	for _, k := range gone {
		if err := tx.Bucket(expiries).Delete(k); err != nil {
			return err
		}
		if err := tx.Bucket(documents).Delete(k[8:]); err != nil {
			return err
		}
	}
	return nil
}

// transact opens the file, takes the steps in a transaction and closes the file.
func (s *Store) transact(ctx context.Context, writable bool, steps ...func(*bbolt.Tx) error) (err error) {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if writable && s.readOnly {
		return fmt.Errorf("the ledger %s was opened to be read", s.path)
	}
	db, err := s.open(ctx, writable)
	if err != nil {
		return err
	}
	defer func() {
		if e := db.Close(); e != nil && err == nil {
			err = fmt.Errorf("closing the ledger %s: %w", s.path, e)
		}
	}()
	run := db.View
	if writable {
		run = db.Update
	}
	return run(func(tx *bbolt.Tx) error {
		for _, step := range steps {
			if err := step(tx); err != nil {
				return err
			}
		}
		return nil
	})
}

// open opens the file once its lock is free.
func (s *Store) open(ctx context.Context, writable bool) (*bbolt.DB, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, lockTimeout,
		fmt.Errorf("another process has held its lock for %s: %w", lockTimeout, ledger.ErrUnavailable))
	defer cancel()
	for {
		db, err := bbolt.Open(s.path, 0o600, &bbolt.Options{Timeout: lockTry, ReadOnly: !writable, FreelistType: bbolt.FreelistMapType})
		if err == nil {
			return db, nil
		}
		switch {
		case errors.Is(err, bolterrors.ErrInvalid), errors.Is(err, bolterrors.ErrChecksum), errors.Is(err, bolterrors.ErrVersionMismatch):
			return nil, fmt.Errorf("opening the ledger %s: the file is no ledger (%w)", s.path, err)
		case !errors.Is(err, bolterrors.ErrTimeout):
			return nil, fmt.Errorf("opening the ledger %s: %w", s.path, err)
		}
		wait := time.NewTimer(lockWait/2 + rand.N(lockWait))
		select {
		case <-wait.C:
		case <-ctx.Done():
			wait.Stop()
			return nil, fmt.Errorf("opening the ledger %s: %w", s.path, context.Cause(ctx))
		}
	}
}

// clock is the store's: the machine's, as precise as it is kept.
func clock() time.Time { return time.UnixMicro(time.Now().UnixMicro()).UTC() }

func encodeKey(key ledger.Key) []byte { return []byte(key.Collection + "\x00" + key.ID) }

func expiryKey(at time.Time, key []byte) []byte {
	return append(binary.BigEndian.AppendUint64(nil, uint64(at.UnixMicro())), key...)
}

// A record is three numbers of eight bytes, big-endian, and the body: the version,
// and when the document was updated and when it expires, in microseconds since 1970
// (0: never).
const head = 24

func encode(w ledger.Write, version uint64, now time.Time) []byte {
	b := binary.BigEndian.AppendUint64(make([]byte, 0, head+len(w.Body)), version)
	b = binary.BigEndian.AppendUint64(b, uint64(now.UnixMicro()))
	var expiry uint64
	if !w.ExpireAt.IsZero() {
		expiry = uint64(w.ExpireAt.UnixMicro())
	}
	return append(binary.BigEndian.AppendUint64(b, expiry), w.Body...)
}

// decode returns the document of a record; none for nil. The file's memory is not
// kept.
func decode(key ledger.Key, record []byte, now time.Time) ledger.Doc {
	doc := ledger.Doc{Key: key, ReadAt: now}
	if record == nil {
		return doc
	}
	doc.Version = strconv.FormatUint(binary.BigEndian.Uint64(record), 10)
	doc.UpdatedAt = time.UnixMicro(int64(binary.BigEndian.Uint64(record[8:]))).UTC()
	if expiry := int64(binary.BigEndian.Uint64(record[16:])); expiry != 0 {
		doc.ExpireAt = time.UnixMicro(expiry).UTC()
	}
	doc.Body = bytes.Clone(record[head:])
	return doc
}
