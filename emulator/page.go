package emulator

import (
	"encoding/base64"
	"encoding/binary"
	"hash/crc32"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// pageToken stands for the page that begins after a table. It carries a
// checksum, by which tableOfPageToken notices a token that no answer gave.
func pageToken(table string) string {
	return base64.RawURLEncoding.EncodeToString(binary.BigEndian.AppendUint32([]byte(table), crc32.ChecksumIEEE([]byte(table))))
}

// tableOfPageToken is the table of an instance after which a token's page
// begins, "" if there is no token.
func tableOfPageToken(instance, token string) (string, error) {
	if token == "" {
		return "", nil
	}
	b, err := base64.RawURLEncoding.DecodeString(token)
	if err == nil && len(b) > crc32.Size {
		end := len(b) - crc32.Size
		table := string(b[:end])
		if pageToken(table) == token && strings.HasPrefix(table, instance+"/tables/") {
			return table, nil
		}
	}
	return "", status.Error(codes.InvalidArgument, "Error in field 'page_token' : it is not of an answer to this request")
}
