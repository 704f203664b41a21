package pipeline

import "testing"

func TestATableRefIsReadAsItIsWritten(t *testing.T) {
	ref := TableRef{Project: "p", Instance: "i", Table: "orders"}
	if ref.String() != "projects/p/instances/i/tables/orders" || ref.Parent() != "projects/p/instances/i" {
		t.Errorf("%s in %s", ref, ref.Parent())
	}
	if got, ok := ParseTableRef(ref.String()); !ok || got != ref {
		t.Errorf("%v, %t", got, ok)
	}
	for _, name := range []string{"", "orders", "projects/p/instances/i", "projects/p/instances/i/tables/orders/x", "project/p/instances/i/tables/orders", "projects/p/instance/i/tables/orders", "projects/p/instances/i/table/orders"} {
		if got, ok := ParseTableRef(name); ok {
			t.Errorf("%q is read as %v", name, got)
		}
	}
}
