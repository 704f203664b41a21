// Package firestore guarantees that a ledger in a Firestore database is read and
// written as ledger.Store says: a commit is one request that names the update time
// of each document as its precondition, so nothing is locked between a read and a
// write, and what was read and written is told by the service's clock.
//
// A document has two fields. body is its JSON as a string; expireAt, where it has
// one, is the timestamp of a TTL policy. Both need a single-field index exemption:
// nothing is queried by them. The collection groups are scans, splits and tallies.
package firestore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"cloud.google.com/go/firestore"
	"google.golang.org/api/iterator"
	"google.golang.org/api/option"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/bigtable-functions/bigtable-functions/internal/retry"
	"github.com/bigtable-functions/bigtable-functions/ledger"
)

const (
	bodyField   = "body"
	expiryField = "expireAt"
)

// Store keeps a ledger in a Firestore database. It is safe for concurrent use.
type Store struct{ client *firestore.Client }

// Open returns the store in a database, (default) being the name of the default
// one. It connects at the first call. FIRESTORE_EMULATOR_HOST names an emulator to
// use instead.
func Open(ctx context.Context, project, database string, options ...option.ClientOption) (*Store, error) {
	client, err := firestore.NewClientWithDatabase(ctx, project, database, options...)
	if err != nil {
		return nil, fmt.Errorf("opening the ledger in Firestore: %w", err)
	}
	return &Store{client: client}, nil
}

// Close closes the connections.
func (s *Store) Close() error { return s.client.Close() }

// Get implements ledger.Store.
func (s *Store) Get(ctx context.Context, keys ...ledger.Key) ([]ledger.Doc, error) {
	snapshots, err := s.client.GetAll(ctx, s.refs(keys))
	if err != nil {
		return nil, explain(ctx, "reading", err, never)
	}
	docs := make([]ledger.Doc, len(keys))
	for i, snapshot := range snapshots {
		if docs[i], err = decode(keys[i], snapshot); err != nil {
			return nil, err
		}
	}
	return docs, nil
}

// List implements ledger.Store.
func (s *Store) List(ctx context.Context, each func(ledger.Doc) error, collections ...string) error {
	var stop error // of each: not the service's
	err := s.client.RunTransaction(ctx, func(ctx context.Context, tx *firestore.Transaction) error {
		for _, collection := range collections {
			if err := s.list(tx, collection, func(doc ledger.Doc) error {
				stop = each(doc)
				return stop
			}); err != nil {
				return err
			}
		}
		return nil
	}, firestore.ReadOnly)
	if stop != nil {
		return stop
	}
	return explain(ctx, "listing", err, never)
}

func (s *Store) list(tx *firestore.Transaction, collection string, each func(ledger.Doc) error) error {
	documents := tx.Documents(s.client.Collection(collection))
	defer documents.Stop()
	for {
		snapshot, err := documents.Next()
		if err == iterator.Done {
			return nil
		}
		if err != nil {
			return err
		}
		doc, err := decode(ledger.Key{Collection: collection, ID: snapshot.Ref.ID}, snapshot)
		if err != nil {
			return err
		}
		if err := each(doc); err != nil {
			return err
		}
	}
}

// Commit implements ledger.Store.
func (s *Store) Commit(ctx context.Context, writes []ledger.Write) ([]string, error) {
	if err := ledger.CheckLimits(writes); err != nil {
		return nil, err
	}
	commit, isConflict := s.commitAll, isStaleOrClosed
	if len(writes) == 1 && writes[0].Op != ledger.OpCheck {
		commit, isConflict = s.commitOne, isStale
	}
	times, err := commit(ctx, writes)
	if err != nil {
		return nil, explain(ctx, "writing", err, isConflict)
	}
	versions := make([]string, len(writes))
	for i, w := range writes {
		if w.Op == ledger.OpPut {
			versions[i] = version(times[i])
		}
	}
	return versions, nil
}

// commitOne is one request.
func (s *Store) commitOne(ctx context.Context, writes []ledger.Write) ([]time.Time, error) {
	w := writes[0]
	ref := s.ref(w.Key)
	precondition, err := at(w)
	if err != nil {
		return nil, err
	}
	var result *firestore.WriteResult
	switch {
	case w.Op == ledger.OpDelete:
		result, err = ref.Delete(ctx, precondition)
	case w.Version == "":
		result, err = ref.Create(ctx, fields(w))
	default:
		result, err = ref.Update(ctx, updates(w), precondition)
	}
	if err != nil {
		return nil, err
	}
	return []time.Time{result.UpdateTime}, nil
}

// commitAll is a transaction. It is tried once: to decide again about documents
// that have changed is the caller's.
func (s *Store) commitAll(ctx context.Context, writes []ledger.Write) ([]time.Time, error) {
	var response firestore.CommitResponse
	err := s.client.RunTransaction(ctx, func(_ context.Context, tx *firestore.Transaction) error {
		if err := s.check(tx, writes); err != nil {
			return err
		}
		for _, w := range writes {
			if err := s.add(tx, w); err != nil {
				return err
			}
		}
		return nil
	}, firestore.MaxAttempts(1), firestore.WithCommitResponseTo(&response))
	if err != nil {
		return nil, err
	}
	results, err := response.WriteResults()
	if err != nil {
		return nil, err
	}
	times := make([]time.Time, len(writes))
	for i, w := range writes {
		if w.Op == ledger.OpCheck {
			continue
		}
		if len(results) == 0 {
			return nil, errors.New("the response lacks a result")
		}
		times[i], results = results[0].UpdateTime, results[1:]
	}
	return times, nil
}

// check reads, and so locks until the commit, what OpCheck names.
func (s *Store) check(tx *firestore.Transaction, writes []ledger.Write) error {
	checks := slices.DeleteFunc(slices.Clone(writes), func(w ledger.Write) bool { return w.Op != ledger.OpCheck })
	if len(checks) == 0 {
		return nil
	}
	var keys []ledger.Key
	for _, w := range checks {
		keys = append(keys, w.Key)
	}
	snapshots, err := tx.GetAll(s.refs(keys))
	if err != nil {
		return err
	}
	for i, snapshot := range snapshots {
		found := ""
		if snapshot.Exists() {
			found = version(snapshot.UpdateTime)
		}
		if found != checks[i].Version {
			return ledger.ErrConflict
		}
	}
	return nil
}

func (s *Store) add(tx *firestore.Transaction, w ledger.Write) error {
	if w.Op == ledger.OpCheck {
		return nil
	}
	ref := s.ref(w.Key)
	precondition, err := at(w)
	switch {
	case err != nil:
		return err
	case w.Op == ledger.OpDelete:
		return tx.Delete(ref, precondition)
	case w.Version == "":
		return tx.Create(ref, fields(w))
	}
	return tx.Update(ref, updates(w), precondition)
}

func (s *Store) ref(key ledger.Key) *firestore.DocumentRef {
	return s.client.Collection(key.Collection).Doc(key.ID)
}

func (s *Store) refs(keys []ledger.Key) []*firestore.DocumentRef {
	refs := make([]*firestore.DocumentRef, len(keys))
	for i, key := range keys {
		refs[i] = s.ref(key)
	}
	return refs
}

func fields(w ledger.Write) map[string]any {
	f := map[string]any{bodyField: string(w.Body)}
	if !w.ExpireAt.IsZero() {
		f[expiryField] = w.ExpireAt
	}
	return f
}

func updates(w ledger.Write) []firestore.Update {
	expiry := firestore.Update{Path: expiryField, Value: firestore.Delete}
	if !w.ExpireAt.IsZero() {
		expiry.Value = w.ExpireAt
	}
	return []firestore.Update{{Path: bodyField, Value: string(w.Body)}, expiry}
}

func decode(key ledger.Key, snapshot *firestore.DocumentSnapshot) (ledger.Doc, error) {
	doc := ledger.Doc{Key: key, ReadAt: snapshot.ReadTime}
	if !snapshot.Exists() {
		return doc, nil
	}
	var f struct {
		Body     string    `firestore:"body"`
		ExpireAt time.Time `firestore:"expireAt"`
	}
	if err := snapshot.DataTo(&f); err != nil {
		return doc, fmt.Errorf("document %s in %s is not the ledger's: %w", key.ID, key.Collection, err)
	}
	doc.Version, doc.UpdatedAt = version(snapshot.UpdateTime), snapshot.UpdateTime
	doc.Body, doc.ExpireAt = []byte(f.Body), f.ExpireAt
	return doc, nil
}

// version is a document's update time: the service makes each write of a document
// later than the one before (google.firestore.v1.Document.update_time).
func version(updated time.Time) string { return updated.UTC().Format(time.RFC3339Nano) }

// at is the precondition that the document is at the write's version. What must
// not exist is created, which needs none.
func at(w ledger.Write) (firestore.Precondition, error) {
	if w.Version == "" {
		if w.Op == ledger.OpDelete {
			return nil, errors.New("a document that must not exist cannot be deleted")
		}
		return nil, nil
	}
	updated, err := time.Parse(time.RFC3339Nano, w.Version)
	if err != nil {
		return nil, fmt.Errorf("a version of another store: %w", err)
	}
	return firestore.LastUpdateTime(updated), nil
}

// isStale reports whether a commit's status says that a precondition does not hold.
// An earlier try of the same commit may be why: the client repeats it after
// UNAVAILABLE. So may a database that is missing: reading the document back shows it.
func isStale(code codes.Code) bool {
	return code == codes.FailedPrecondition || code == codes.AlreadyExists || code == codes.NotFound
}

// isStaleOrClosed is isStale for the commit of a transaction, which, repeated after
// it was applied, is told that the transaction is closed (seen on the emulator).
func isStaleOrClosed(code codes.Code) bool { return isStale(code) || code == codes.InvalidArgument }

func never(codes.Code) bool { return false }

// explain says what an error means to the ledger, given which codes are a conflict.
func explain(ctx context.Context, doing string, err error, isConflict func(codes.Code) bool) error {
	if err == nil || errors.Is(err, ledger.ErrConflict) {
		return err
	}
	var meaning error
	switch {
	case ctx.Err() != nil:
		meaning = ctx.Err()
	case isConflict(status.Code(err)):
		meaning = ledger.ErrConflict
	case retry.Classify(err).Verdict == retry.VerdictTransient:
		meaning = ledger.ErrUnavailable
	default:
		return fmt.Errorf("%s the ledger in Firestore: %w", doing, err)
	}
	return fmt.Errorf("%s the ledger in Firestore: %w (%w)", doing, meaning, err)
}
