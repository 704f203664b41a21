package store

// Interner shares the qualifiers that rows of a table have in common. It is
// bounded, because qualifiers may be data. It is not safe for concurrent use;
// a nil one shares nothing.
type Interner struct{ names map[string]string }

const (
	internedNames = 4096
	internedBytes = 64
)

// Intern is b as a string.
func (in *Interner) Intern(b []byte) string {
	if in == nil || len(b) > internedBytes {
		return string(b)
	}
	if s, ok := in.names[string(b)]; ok {
		return s
	}
	s := string(b)
	if in.names == nil {
		in.names = map[string]string{}
	}
	if len(in.names) < internedNames {
		in.names[s] = s
	}
	return s
}
