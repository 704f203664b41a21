package emulator

import (
	"cloud.google.com/go/bigtable/admin/apiv2/adminpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/bigtable-functions/bigtable-functions/emulator/internal/store"
)

// The row key schema is kept and checked by the rules of table.proto,
// Table.row_key_schema, and types.proto, Struct. It matters to SQL only, which
// is not served.

// updateRowKeySchema sets a schema where there is none, or removes the one
// that there is.
func updateRowKeySchema(info *adminpb.Table, req *adminpb.UpdateTableRequest) error {
	switch {
	case req.Table.RowKeySchema == nil && info.RowKeySchema != nil && !req.IgnoreWarnings:
		return status.Error(codes.InvalidArgument, "Removing the row_key_schema needs ignore_warnings")
	case req.Table.RowKeySchema != nil && info.RowKeySchema != nil:
		return status.Error(codes.InvalidArgument, "Error in field 'row_key_schema' : the table has one, which can only be removed")
	}
	info.RowKeySchema = req.Table.RowKeySchema
	return nil
}

func checkRowKeySchema(s *adminpb.Type_Struct, schema *store.Schema) error {
	if s == nil {
		return nil
	}
	refuse := func(format string, args ...any) error {
		return status.Errorf(codes.InvalidArgument, "Error in field 'row_key_schema' : "+format, args...)
	}
	if len(s.Fields) == 0 {
		return refuse("must have at least one field")
	}
	names := map[string]bool{"_key": true, "_timestamp": true}
	for i, f := range s.Fields {
		switch name := f.GetFieldName(); {
		case name == "":
			return refuse("field #%d has no name", i)
		case schema.Families[name] != nil:
			return refuse("field %q has the name of a column family", name)
		case names[name]:
			return refuse("field %q has a reserved name, or that of another field", name)
		default:
			names[name] = true
		}
		if err := store.CheckKeyType(f.GetType()); err != nil {
			return refuse("field %q: %v", f.GetFieldName(), err)
		}
	}
	switch k := s.GetEncoding().GetEncoding().(type) {
	case *adminpb.Type_Struct_Encoding_Singleton_:
		if len(s.Fields) != 1 {
			return refuse("the singleton encoding is for exactly one field, not %d", len(s.Fields))
		}
	case *adminpb.Type_Struct_Encoding_DelimitedBytes_:
		if len(k.DelimitedBytes.GetDelimiter()) == 0 {
			return refuse("the delimited_bytes encoding needs a delimiter")
		}
	case *adminpb.Type_Struct_Encoding_OrderedCodeBytes_:
	default:
		return refuse("must have an encoding")
	}
	return nil
}
