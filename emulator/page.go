package emulator

import (
	"encoding/base64"
	"encoding/binary"
	"hash/crc32"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// pageToken stands for the page that begins after a resource. It carries a
// checksum, by which nameOfPageToken notices a token that no answer gave.
func pageToken(name string) string {
	return base64.RawURLEncoding.EncodeToString(binary.BigEndian.AppendUint32([]byte(name), crc32.ChecksumIEEE([]byte(name))))
}

// page is the part of a sorted list of names, which all begin with prefix,
// that a request asks for, and the token of the next page, "" after the last.
func page(names []string, prefix string, size int32, token string) (part []string, next string, err error) {
	if size < 0 {
		return nil, "", status.Error(codes.InvalidArgument, "Error in field 'page_size' : must be >= 0")
	}
	after, err := nameOfPageToken(prefix, token)
	if err != nil {
		return nil, "", err
	}
	i, _ := slices.BinarySearch(names, after)
	if i < len(names) && names[i] == after {
		i++
	}
	names = names[i:]
	if size > 0 && len(names) > int(size) {
		return names[:size], pageToken(names[size-1]), nil
	}
	return names, "", nil
}

// nameOfPageToken is the name after which a token's page begins, "" if there
// is no token. The names of the list all begin with prefix.
func nameOfPageToken(prefix, token string) (string, error) {
	if token == "" {
		return "", nil
	}
	b, err := base64.RawURLEncoding.DecodeString(token)
	if err == nil && len(b) > crc32.Size {
		end := len(b) - crc32.Size
		name := string(b[:end])
		if pageToken(name) == token && strings.HasPrefix(name, prefix) {
			return name, nil
		}
	}
	return "", status.Error(codes.InvalidArgument, "Error in field 'page_token' : it is not of an answer to this request")
}
