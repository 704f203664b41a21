package store

import (
	"errors"
	"fmt"

	"cloud.google.com/go/bigtable/admin/apiv2/adminpb"
)

// A value type says how clients and SQL read the bytes of a family's cells.
// Only an aggregate changes what a write does.

// checkValueType checks a value type that is no aggregate: what has encodings
// must name one, down to its parts.
func checkValueType(t *adminpb.Type) error {
	switch k := t.GetKind().(type) {
	case *adminpb.Type_StructType:
		return checkStruct(k.StructType)
	case *adminpb.Type_ArrayType:
		return inElement("array_type.element_type", k.ArrayType.GetElementType())
	case *adminpb.Type_MapType:
		if err := inElement("map_type.key_type", k.MapType.GetKeyType()); err != nil {
			return err
		}
		return inElement("map_type.value_type", k.MapType.GetValueType())
	case *adminpb.Type_AggregateType:
		return errors.New("an aggregate_type cannot be part of another type")
	}
	return checkScalar(t)
}

func inElement(field string, t *adminpb.Type) error {
	if err := checkValueType(t); err != nil {
		return fmt.Errorf("%s: %w", field, err)
	}
	return nil
}

func checkStruct(s *adminpb.Type_Struct) error {
	if len(s.GetFields()) == 0 {
		return errors.New("struct_type must have at least one field")
	}
	for i, f := range s.Fields {
		if err := inElement(fmt.Sprintf("struct_type.fields[%d]", i), f.GetType()); err != nil {
			return err
		}
	}
	return nil
}

var errNoEncoding = errors.New("the type must name an encoding")

// checkScalar checks a type without parts.
func checkScalar(t *adminpb.Type) error {
	encoded := true
	switch k := t.GetKind().(type) {
	case *adminpb.Type_BytesType:
		encoded = k.BytesType.GetEncoding().GetEncoding() != nil
	case *adminpb.Type_StringType:
		encoded = k.StringType.GetEncoding().GetEncoding() != nil
	case *adminpb.Type_Int64Type:
		encoded = k.Int64Type.GetEncoding().GetEncoding() != nil
	case *adminpb.Type_TimestampType:
		encoded = k.TimestampType.GetEncoding().GetEncoding() != nil
	case *adminpb.Type_ProtoType:
		if k.ProtoType.GetSchemaBundleId() == "" || k.ProtoType.GetMessageName() == "" {
			return errors.New("proto_type must name a schema_bundle_id and a message_name")
		}
	case *adminpb.Type_EnumType:
		if k.EnumType.GetSchemaBundleId() == "" || k.EnumType.GetEnumName() == "" {
			return errors.New("enum_type must name a schema_bundle_id and an enum_name")
		}
	case *adminpb.Type_Float32Type, *adminpb.Type_Float64Type, *adminpb.Type_BoolType, *adminpb.Type_DateType:
	default:
		return errors.New("the type must have a kind")
	}
	if !encoded {
		return errNoEncoding
	}
	return nil
}

// CheckKeyType checks the type of a field of a row key schema: a scalar type
// with an encoding (table.proto, Table.row_key_schema).
func CheckKeyType(t *adminpb.Type) error {
	switch t.GetKind().(type) {
	case *adminpb.Type_ArrayType, *adminpb.Type_MapType, *adminpb.Type_AggregateType, *adminpb.Type_StructType:
		return errors.New("the type must be scalar")
	}
	return checkScalar(t)
}
