package provider

import (
	"testing"

	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/knownvalue"
	"github.com/hashicorp/terraform-plugin-testing/statecheck"
	"github.com/hashicorp/terraform-plugin-testing/tfjsonpath"

	"github.com/tailmesh/terraform-provider-tailmesh/policy/controlsim"
)

func TestDevice(t *testing.T) {
	needTofu(t)
	t.Parallel()
	tailnet := newTailnet(t, controlsim.Options{})
	ams1 := tailnet.ams1(t)
	twin := ams1
	twin.ID, twin.NodeID, twin.Name, twin.Addresses = "9911", "ntwinCNTRL", "ams1-1.tail1234.ts.net", []string{"100.64.0.111"}
	twin.ConnectedToControl = false
	late := ams1
	late.ID, late.NodeID, late.Name, late.Hostname, late.Addresses = "9912", "nlateCNTRL", "late.tail1234.ts.net", "late", []string{"100.64.0.112"}
	add := func(d controlsim.Device) {
		if err := tailnet.AddDevice(d); err != nil {
			t.Error(err)
		}
	}
	config := func(hcl string) string {
		return tailnet.config("data \"tailmesh_device\" \"this\" {\n" + hcl + "\n}\n")
	}
	whole := knownvalue.ObjectPartial(map[string]knownvalue.Check{
		"id": knownvalue.StringExact(ams1.NodeID), "name": knownvalue.StringExact("ams1"), "hostname": knownvalue.StringExact("ams1"),
		"full_name": knownvalue.StringExact("ams1.tail1234.ts.net"), "connected": knownvalue.Bool(true), "os": knownvalue.StringExact("linux"),
		"tags": knownvalue.ListExact([]knownvalue.Check{knownvalue.StringExact("tag:node")}),
		"endpoints": knownvalue.ListExact([]knownvalue.Check{
			knownvalue.StringExact("192.0.2.11:41641"), knownvalue.StringExact("192.168.10.11:41641"), knownvalue.StringExact("[2001:db8:a::11]:41641"),
		}),
	})
	var steps []resource.TestStep
	for _, by := range []string{`name = "ams1"`, `full_name = "ams1.tail1234.ts.net"`, `hostname = "ams1"`, `id = "` + ams1.NodeID + `"`} {
		steps = append(steps, resource.TestStep{
			Config:            config(by) + "output \"device\" {\n  value = data.tailmesh_device.this\n}\n",
			ConfigStateChecks: []statecheck.StateCheck{statecheck.ExpectKnownOutputValue("device", whole)},
		})
	}
	steps = append(steps,
		resource.TestStep{Config: config(``), ExpectError: says("one (and only one) of", "id")},
		resource.TestStep{Config: config("name = \"ams1\"\nhostname = \"ams1\""), ExpectError: says("one (and only one) of")},
		resource.TestStep{Config: config(`name = ""`), ExpectError: says("at least 1")},
		resource.TestStep{
			Config:      config(`name = "ams9"`),
			ExpectError: says(`no device has the name "ams9"`, `The tailnet's devices have "ams1", "ams2", "fra1", "fra2", "laptop".`),
		},
		resource.TestStep{
			Config:      config(`name = "ams1.tail1234.ts.net"`),
			ExpectError: says(`no device has the name "ams1.tail1234.ts.net"`, "It is the full_name of a device"),
		},
		resource.TestStep{
			Config:      config("name = \"ams9\"\ntimeouts = { read = \"1s\" }"),
			ExpectError: says(`It was waited for 1s.`),
		},
		resource.TestStep{
			PreConfig:   func() { add(twin) },
			Config:      config(`hostname = "ams1"`),
			ExpectError: says(`2 devices have the hostname "ams1"`, ams1.NodeID, "connected", "ntwinCNTRL", "ams1-1.tail1234.ts.net", "100.64.0.111", "offline"),
		},
		resource.TestStep{
			Config: config(`name = "ams1"`), // which tells the two apart
		},
		resource.TestStep{
			PreConfig: func() { // the first list that is asked for has nobody in it
				add(late)
				if err := tailnet.AddFault(controlsim.Fault{Kind: controlsim.EmptyFault}); err != nil {
					t.Error(err)
				}
			},
			Config: config("name = \"late\"\ntimeouts = { read = \"1m\" }"),
			ConfigStateChecks: []statecheck.StateCheck{
				statecheck.ExpectKnownValue("data.tailmesh_device.this", tfjsonpath.New("id"), knownvalue.StringExact("nlateCNTRL")),
			},
		},
	)
	resource.UnitTest(t, resource.TestCase{ProtoV6ProviderFactories: factories(), Steps: steps})
}
