package controlsim

import (
	"encoding/json"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// change is a call that changes one device: found by its ID, changed by do in the handler's copy, then kept.
func (s *Sim) change(c *call, do func(*Device) *refusal) *refusal {
	d := c.st.device(c.r.PathValue("id"))
	if d == nil {
		return noDevice()
	}
	if no := do(d); no != nil {
		return no
	}
	if no := s.commit(c.st); no != nil {
		return no
	}
	return c.answer(nil)
}

func noDevice() *refusal { return refuse(http.StatusNotFound, "device not found") }

func allFields(c *call) (bool, *refusal) {
	switch fields := c.r.URL.Query().Get("fields"); fields {
	case "", "default":
		return false, nil
	case "all":
		return true, nil
	default:
		return false, refuse(http.StatusBadRequest, "invalid value %q for fields: want default or all", fields)
	}
}

// listDevices answers the devices that have every value asked for; each query key but fields is a filter.
func (s *Sim) listDevices(c *call) *refusal {
	all, no := allFields(c)
	if no != nil {
		return no
	}
	list := []Device{}
	for _, d := range c.st.Devices {
		wanted := true
		for field, values := range c.r.URL.Query() {
			for _, value := range values {
				wanted = wanted && (field == "fields" || d.has(field, value))
			}
		}
		if wanted {
			list = append(list, d.view(all))
		}
	}
	return c.answer(map[string]any{"devices": list})
}

func (s *Sim) getDevice(c *call) *refusal {
	all, no := allFields(c)
	if no != nil {
		return no
	}
	d := c.st.device(c.r.PathValue("id"))
	if d == nil {
		return noDevice()
	}
	return c.answer(d.view(all))
}

func (s *Sim) deleteDevice(c *call) *refusal {
	d := c.st.device(c.r.PathValue("id"))
	if d == nil {
		return noDevice()
	}
	if d.IsExternal {
		return refuse(http.StatusNotImplemented, "device is owned by another tailnet")
	}
	c.st.Devices = slices.DeleteFunc(c.st.Devices, func(other *Device) bool { return other == d })
	delete(c.st.Attributes, d.NodeID)
	if no := s.commit(c.st); no != nil {
		return no
	}
	c.w.WriteHeader(http.StatusOK)
	return nil
}

func (s *Sim) authorizeDevice(c *call) *refusal {
	var body struct {
		Authorized *bool `json:"authorized"`
	}
	if no := c.decode(&body); no != nil {
		return no
	}
	return s.change(c, func(d *Device) *refusal {
		d.Authorized = body.Authorized == nil || *body.Authorized
		return nil
	})
}

func (s *Sim) tagDevice(c *call) *refusal {
	var body struct {
		Tags []string `json:"tags"`
	}
	if no := c.decode(&body); no != nil {
		return no
	}
	return s.change(c, func(d *Device) *refusal {
		if no := c.st.mayUseTags(c.who, body.Tags); no != nil {
			return no
		}
		d.Tags = slices.Compact(slices.Sorted(slices.Values(body.Tags)))
		if len(d.Tags) > 0 {
			d.User = "" // a tagged device is nobody's, and stays so when the tags go
		}
		c.st.approveRoutes()
		return nil
	})
}

func (s *Sim) setDeviceKey(c *call) *refusal {
	var body struct {
		KeyExpiryDisabled bool `json:"keyExpiryDisabled"`
	}
	if no := c.decode(&body); no != nil {
		return no
	}
	return s.change(c, func(d *Device) *refusal {
		d.KeyExpiryDisabled = body.KeyExpiryDisabled // the date stays, to come back with the expiry
		return nil
	})
}

func (s *Sim) expireDevice(c *call) *refusal {
	return s.change(c, func(d *Device) *refusal {
		d.KeyExpiryDisabled = false
		d.Expires = time.Now().UTC().Format(time.RFC3339)
		return nil
	})
}

func (s *Sim) nameDevice(c *call) *refusal {
	var body struct {
		Name string `json:"name"`
	}
	if no := c.decode(&body); no != nil {
		return no
	}
	return s.change(c, func(d *Device) *refusal {
		label := strings.TrimSuffix(strings.TrimSuffix(body.Name, "."), "."+c.st.dnsSuffix())
		if label == "" {
			label = d.Hostname // an empty name returns to the device's own
		}
		if strings.Contains(label, ".") || len(label) > 63 {
			return refuse(http.StatusBadRequest, "invalid name %q", body.Name)
		}
		name := label + "." + c.st.dnsSuffix()
		if slices.ContainsFunc(c.st.Devices, func(other *Device) bool { return other != d && other.Name == name }) {
			return refuse(http.StatusBadRequest, "name %q is already in use", label)
		}
		d.Name = name
		return nil
	})
}

func (s *Sim) setDeviceIP(c *call) *refusal {
	var body struct {
		IPv4 string `json:"ipv4"`
	}
	if no := c.decode(&body); no != nil {
		return no
	}
	return s.change(c, func(d *Device) *refusal {
		addr, err := netip.ParseAddr(body.IPv4)
		if err != nil || !netip.MustParsePrefix("100.64.0.0/10").Contains(addr) {
			return refuse(http.StatusBadRequest, "invalid IPv4 address %q: want one in 100.64.0.0/10", body.IPv4)
		}
		if other := c.st.deviceByAddress(addr); other != nil && other != d {
			return refuse(http.StatusBadRequest, "address %s is already in use", addr)
		}
		for i, a := range d.Addresses {
			if strings.Contains(a, ".") {
				d.Addresses[i] = addr.String()
			}
		}
		return nil
	})
}

// deviceRoutes is the answer to both calls on a device's routes.
type deviceRoutes struct {
	Advertised []string `json:"advertisedRoutes"`
	Enabled    []string `json:"enabledRoutes"`
}

func (s *Sim) getDeviceRoutes(c *call) *refusal {
	d := c.st.device(c.r.PathValue("id"))
	if d == nil {
		return noDevice()
	}
	v := d.view(true)
	return c.answer(deviceRoutes{v.AdvertisedRoutes, v.EnabledRoutes})
}

// setDeviceRoutes replaces the enabled routes. They need not be advertised yet; those that the policy approves are
// enabled whatever is sent.
func (s *Sim) setDeviceRoutes(c *call) *refusal {
	var body struct {
		Routes []string `json:"routes"`
	}
	if no := c.decode(&body); no != nil {
		return no
	}
	d := c.st.device(c.r.PathValue("id"))
	if d == nil {
		return noDevice()
	}
	enabled := []string{}
	for _, route := range body.Routes {
		prefix, err := netip.ParsePrefix(route)
		if err != nil || prefix != prefix.Masked() {
			return refuse(http.StatusBadRequest, "invalid route %q: want a CIDR without host bits", route)
		}
		if !slices.Contains(enabled, prefix.String()) {
			enabled = append(enabled, prefix.String())
		}
	}
	d.EnabledRoutes = enabled
	c.st.approveRoutes()
	if no := s.commit(c.st); no != nil {
		return no
	}
	return s.getDeviceRoutes(c)
}

// attributes are the custom posture attributes of one device, by key.
type attributes map[string]attribute

type attribute struct {
	Value   any    `json:"value"`
	Expiry  string `json:"expiry,omitempty"`
	Comment string `json:"comment,omitempty"`
}

func (s *Sim) getAttributes(c *call) *refusal {
	d := c.st.device(c.r.PathValue("id"))
	if d == nil {
		return noDevice()
	}
	values := map[string]any{"node:os": d.OS, "node:tsVersion": d.ClientVersion}
	expiries := map[string]string{}
	for key, a := range c.st.Attributes[d.NodeID] {
		if t, err := time.Parse(time.RFC3339, a.Expiry); err == nil && t.Year() > 1 {
			if expired(t) {
				continue
			}
			expiries[key] = a.Expiry
		}
		values[key] = a.Value
	}
	return c.answer(map[string]any{"attributes": values, "expiries": expiries})
}

func (s *Sim) setAttribute(c *call) *refusal {
	key := c.r.PathValue("key")
	if !strings.HasPrefix(key, "custom:") {
		return refuse(http.StatusBadRequest, "invalid attribute key %q: only custom: attributes can be set", key)
	}
	var body attribute
	if no := c.decode(&body); no != nil {
		return no
	}
	switch body.Value.(type) {
	case string, bool, float64, json.Number:
	default:
		return refuse(http.StatusBadRequest, "invalid value: want a string, a number or a boolean")
	}
	return s.change(c, func(d *Device) *refusal {
		if c.st.Attributes[d.NodeID] == nil {
			c.st.Attributes[d.NodeID] = attributes{}
		}
		c.st.Attributes[d.NodeID][key] = body
		return nil
	})
}

func (s *Sim) deleteAttribute(c *call) *refusal {
	return s.change(c, func(d *Device) *refusal {
		delete(c.st.Attributes[d.NodeID], c.r.PathValue("key"))
		return nil
	})
}
