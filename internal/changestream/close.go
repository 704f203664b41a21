package changestream

import (
	"fmt"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/grpc/codes"

	"github.com/bigtable-functions/bigtable-functions/internal/rowrange"
)

// Closed is what the service said when it ended the stream of a partition.
type Closed struct {
	// Finished says that the stream has passed its end time. There are no successors then.
	Finished bool
	// Successors are where the keys of the partition go on. Their tokens' ranges lie apart
	// from one another and hold exactly the partition's keys.
	Successors []Successor
}

// Successor is one part of a partition that has closed.
type Successor struct {
	// Target is the partition that will have these keys, with keys of others maybe.
	Target rowrange.Range
	// Token resumes the keys that Target and the closed partition share.
	Token Token
}

// ReadClose reads the close of the stream of partition. An error, which wraps
// ErrProtocol, means that it does not say where every key goes: the partition keeps its
// position then, and is to be opened again.
//
// A token belongs to the keys of its own range that are in the closed partition: the
// service has been seen to name the child's range in a merge (docs/protocol.md, change
// streams).
func ReadClose(partition rowrange.Range, c *bigtablepb.ReadChangeStreamResponse_CloseStream) (Closed, error) {
	tokens, targets := c.GetContinuationTokens(), c.GetNewPartitions()
	code := codes.Code(c.GetStatus().GetCode())
	switch {
	case code == codes.OK && len(tokens)+len(targets) > 0:
		return Closed{}, protocolError("a stream that is finished and goes on at %d tokens", max(len(tokens), len(targets)))
	case code == codes.OK:
		return Closed{Finished: true}, nil
	case code != codes.OutOfRange:
		return Closed{}, protocolError("a stream closed with status %s", code)
	case len(tokens) == 0:
		return Closed{}, protocolError("a partition that is gone and goes on nowhere")
	case len(targets) > 0 && len(targets) != len(tokens):
		return Closed{}, protocolError("%d tokens for %d new partitions", len(tokens), len(targets))
	}
	var out Closed
	for i, t := range tokens {
		s, err := successor(partition, t, i, targets)
		if err != nil {
			return Closed{}, err
		}
		out.Successors = append(out.Successors, s)
	}
	if err := exact(partition, out.Successors); err != nil {
		return Closed{}, err
	}
	return out, nil
}

func successor(partition rowrange.Range, t *bigtablepb.StreamContinuationToken, i int, targets []*bigtablepb.StreamPartition) (Successor, error) {
	token, err := ReadToken(t)
	if err != nil {
		return Successor{}, fmt.Errorf("reading the token of a closed partition: %w", err)
	}
	s := Successor{Target: token.Range, Token: token}
	if len(targets) > 0 {
		if s.Target, err = ReadRange(targets[i].GetRowRange()); err != nil {
			return Successor{}, fmt.Errorf("reading a new partition: %w", err)
		}
	}
	var some bool
	if s.Token.Range, some = rowrange.Intersect(token.Range, partition); !some {
		return Successor{}, protocolError("a token for none of the closed partition's keys")
	}
	if both, _ := rowrange.Intersect(s.Target, s.Token.Range); !both.Equal(s.Token.Range) {
		return Successor{}, protocolError("a token with keys that its new partition does not have")
	}
	return s, nil
}

// exact checks that the tokens hold the partition's keys, each once.
func exact(partition rowrange.Range, successors []Successor) error {
	tokens := make([]Token, len(successors))
	ranges := make([]rowrange.Range, len(successors))
	for i, s := range successors {
		tokens[i], ranges[i] = s.Token, s.Token.Range
	}
	if !rowrange.Covers(ranges, partition) {
		return protocolError("tokens that do not hold all keys of the closed partition")
	}
	if !HoldOnce(partition, tokens) {
		return protocolError("tokens that share keys of the closed partition")
	}
	return nil
}
