package provider

import (
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/providerserver"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-go/tftypes"
)

// An element without a value is refused wherever a configuration can have one, and named.
func TestNullElements(t *testing.T) {
	server := providerserver.NewProtocol6(New("test")())()
	schemas, err := server.GetProviderSchema(t.Context(), &tfprotov6.GetProviderSchemaRequest{})
	if err != nil {
		t.Fatal(err)
	}
	type validate func(*tfprotov6.DynamicValue) ([]*tfprotov6.Diagnostic, error)
	tried := 0
	try := func(name string, schema *tfprotov6.Schema, ask validate) {
		for _, place := range collections(schema.Block.Attributes) {
			tried++
			t.Run(name+"/"+place.name, func(t *testing.T) {
				typ := schema.ValueType()
				config, err := tfprotov6.NewDynamicValue(typ, place.nullIn(typ))
				if err != nil {
					t.Fatal(err)
				}
				diags, err := ask(&config)
				if err != nil {
					t.Fatal(err)
				}
				if !slices.ContainsFunc(diags, func(d *tfprotov6.Diagnostic) bool {
					return strings.HasSuffix(d.Summary, " is null") && strings.Contains(d.Summary, place.leaf())
				}) {
					t.Errorf("taken; said was %v", said(diags))
				}
			})
		}
	}
	try("provider", schemas.Provider, func(v *tfprotov6.DynamicValue) ([]*tfprotov6.Diagnostic, error) {
		r, err := server.ValidateProviderConfig(t.Context(), &tfprotov6.ValidateProviderConfigRequest{Config: v})
		return r.Diagnostics, err
	})
	for name, schema := range schemas.ResourceSchemas {
		try(name, schema, func(v *tfprotov6.DynamicValue) ([]*tfprotov6.Diagnostic, error) {
			r, err := server.ValidateResourceConfig(t.Context(), &tfprotov6.ValidateResourceConfigRequest{TypeName: name, Config: v})
			return r.Diagnostics, err
		})
	}
	for name, schema := range schemas.DataSourceSchemas {
		try("data."+name, schema, func(v *tfprotov6.DynamicValue) ([]*tfprotov6.Diagnostic, error) {
			r, err := server.ValidateDataResourceConfig(t.Context(), &tfprotov6.ValidateDataResourceConfigRequest{TypeName: name, Config: v})
			return r.Diagnostics, err
		})
	}
	for name, schema := range schemas.EphemeralResourceSchemas {
		try("ephemeral."+name, schema, func(v *tfprotov6.DynamicValue) ([]*tfprotov6.Diagnostic, error) {
			r, err := server.ValidateEphemeralResourceConfig(t.Context(), &tfprotov6.ValidateEphemeralResourceConfigRequest{TypeName: name, Config: v})
			return r.Diagnostics, err
		})
	}
	if tried < 20 {
		t.Errorf("%d attributes were tried, which cannot be all", tried)
	}

	list := tftypes.List{ElementType: tftypes.String}
	argument, err := tfprotov6.NewDynamicValue(list, tftypes.NewValue(list, []tftypes.Value{
		tftypes.NewValue(tftypes.String, "{}"), tftypes.NewValue(tftypes.String, nil),
	}))
	if err != nil {
		t.Fatal(err)
	}
	answer, err := server.CallFunction(t.Context(), &tfprotov6.CallFunctionRequest{Name: "policy_merge", Arguments: []*tfprotov6.DynamicValue{&argument}})
	if err != nil {
		t.Fatal(err)
	}
	if e := answer.Error; e == nil || !strings.HasPrefix(e.Text, "element [1] is null") {
		t.Errorf("policy_merge says %+v", e)
	}
}

// place is an attribute that holds strings in a list, set or map, below the attribute around it if there is one.
type place struct {
	name    string // as in "selector.tags"
	nesting tfprotov6.SchemaObjectNestingMode
}

func (p place) leaf() string { return p.name[strings.LastIndex(p.name, ".")+1:] }

// collections are the places of strings that a configuration sets.
func collections(attributes []*tfprotov6.SchemaAttribute) (out []place) {
	for _, a := range attributes {
		if a.NestedType != nil {
			for _, p := range collections(a.NestedType.Attributes) {
				out = append(out, place{a.Name + "." + p.name, a.NestedType.Nesting})
			}
			continue
		}
		switch a.Type.(type) {
		case tftypes.List, tftypes.Set, tftypes.Map:
			if a.Optional || a.Required {
				out = append(out, place{name: a.Name})
			}
		}
	}
	return out
}

// nullIn is a configuration that sets nothing but the place, which has one element that is null.
func (p place) nullIn(typ tftypes.Type) tftypes.Value {
	name, rest, nested := strings.Cut(p.name, ".")
	object, _ := typ.(tftypes.Object)
	values := map[string]tftypes.Value{}
	for key, t := range object.AttributeTypes {
		values[key] = tftypes.NewValue(t, nil)
	}
	at := object.AttributeTypes[name]
	switch {
	case nested && p.nesting == tfprotov6.SchemaObjectNestingModeList:
		list, _ := at.(tftypes.List)
		values[name] = tftypes.NewValue(at, []tftypes.Value{place{name: rest}.nullIn(list.ElementType)})
	case nested:
		values[name] = place{name: rest}.nullIn(at)
	default:
		values[name] = withNull(at)
	}
	return tftypes.NewValue(typ, values)
}

// withNull is a collection with one element that is null, as deep as it goes.
func withNull(typ tftypes.Type) tftypes.Value {
	switch typ := typ.(type) {
	case tftypes.List:
		return tftypes.NewValue(typ, []tftypes.Value{withNull(typ.ElementType)})
	case tftypes.Set:
		return tftypes.NewValue(typ, []tftypes.Value{withNull(typ.ElementType)})
	case tftypes.Map:
		return tftypes.NewValue(typ, map[string]tftypes.Value{"key": withNull(typ.ElementType)})
	}
	return tftypes.NewValue(typ, nil)
}

func said(diags []*tfprotov6.Diagnostic) (out []string) {
	for _, d := range diags {
		out = append(out, d.Summary+": "+d.Detail)
	}
	return out
}
