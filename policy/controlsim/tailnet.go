package controlsim

import (
	"bytes"
	"cmp"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// User is one user, on the wire as in the API's user list.
type User struct {
	ID                 string `json:"id"`
	DisplayName        string `json:"displayName"`
	LoginName          string `json:"loginName"`
	ProfilePicURL      string `json:"profilePicUrl"`
	TailnetID          string `json:"tailnetId"`
	Created            string `json:"created"`
	Type               string `json:"type"`
	Role               string `json:"role"`
	Status             string `json:"status"`
	DeviceCount        int    `json:"deviceCount"`
	LastSeen           string `json:"lastSeen"`
	CurrentlyConnected bool   `json:"currentlyConnected"`
}

// complete fills in what an inventory may leave out and the API always has.
func (u *User) complete(st *state) {
	if u.ID == "" {
		u.ID = st.newID("u")
	}
	u.DisplayName = cmp.Or(u.DisplayName, u.LoginName)
	u.TailnetID = cmp.Or(u.TailnetID, "TsimCNTRL")
	u.Created = cmp.Or(u.Created, "2026-01-02T03:04:05Z")
	u.LastSeen = cmp.Or(u.LastSeen, u.Created)
	u.Type = cmp.Or(u.Type, "member")
	u.Role = cmp.Or(u.Role, "member")
	u.Status = cmp.Or(u.Status, "active")
}

func (st *state) userByLogin(login string) *User {
	for _, u := range st.Users {
		if strings.EqualFold(u.LoginName, login) {
			return u
		}
	}
	return nil
}

func (s *Sim) listUsers(c *call) *refusal {
	list := []*User{}
	kind, role := c.r.URL.Query().Get("type"), c.r.URL.Query().Get("role")
	for _, u := range c.st.Users {
		if (kind == "" || kind == "all" || u.Type == kind) && (role == "" || role == "all" || u.Role == role) {
			list = append(list, u)
		}
	}
	return c.answer(map[string]any{"users": list})
}

func (s *Sim) getUser(c *call) *refusal {
	for _, u := range c.st.Users {
		if u.ID == c.r.PathValue("id") {
			return c.answer(u)
		}
	}
	return refuse(http.StatusNotFound, "user not found")
}

// settings are the tailnet's settings, by the API's names.
type settings map[string]any

func defaultSettings() settings {
	return settings{
		"aclsExternallyManagedOn":                false,
		"aclsExternalLink":                       "",
		"devicesApprovalOn":                      false,
		"devicesAutoUpdatesOn":                   false,
		"devicesKeyDurationDays":                 float64(180),
		"usersApprovalOn":                        false,
		"usersRoleAllowedToJoinExternalTailnets": "admin",
		"networkFlowLoggingOn":                   false,
		"regionalRoutingOn":                      false,
		"postureIdentityCollectionOn":            false,
		"httpsEnabled":                           false,
		"routeSelection":                         "active-passive-failover",
	}
}

// settingScope is the scope that a setting needs, without ":read".
func settingScope(name string) string {
	switch name {
	case "aclsExternallyManagedOn", "aclsExternalLink":
		return "policy_file"
	case "networkFlowLoggingOn":
		return "logs:network"
	case "httpsEnabled":
		return "networking_settings"
	}
	return "feature_settings"
}

// getSettings shows the settings that the caller may see and leaves the others out.
func (s *Sim) getSettings(c *call) *refusal {
	visible := settings{}
	for name, value := range c.st.Settings {
		if c.who.may(settingScope(name) + ":read") {
			visible[name] = value
		}
	}
	if len(visible) == 0 {
		return c.who.need("feature_settings:read")
	}
	return c.answer(visible)
}

// changeSettings changes what is there and not null.
func (s *Sim) changeSettings(c *call) *refusal {
	var change map[string]any
	dec := json.NewDecoder(bytes.NewReader(c.body))
	if err := dec.Decode(&change); err != nil {
		return refuse(http.StatusBadRequest, "invalid request body: %v", err)
	}
	for name, value := range change {
		old, known := c.st.Settings[name]
		if !known {
			return refuse(http.StatusBadRequest, "json: unknown field %q", name)
		}
		if value == nil {
			delete(change, name)
			continue
		}
		if no := c.who.need(settingScope(name)); no != nil {
			return no
		}
		if !validSetting(name, old, value) {
			return refuse(http.StatusBadRequest, "invalid value %v for %s", value, name)
		}
	}
	_, both := change["routeSelection"]
	if _, old := change["regionalRoutingOn"]; old && both {
		return refuse(http.StatusBadRequest, "regionalRoutingOn and routeSelection can not both be set")
	}
	for name, value := range change {
		c.st.Settings[name] = value
		switch name {
		case "routeSelection":
			c.st.Settings["regionalRoutingOn"] = value == "regional-routing"
		case "regionalRoutingOn":
			c.st.Settings["routeSelection"] = "active-passive-failover"
			if value == true {
				c.st.Settings["routeSelection"] = "regional-routing"
			}
		}
	}
	if no := s.commit(c.st); no != nil {
		return no
	}
	return s.getSettings(c)
}

func validSetting(name string, old, value any) bool {
	switch old.(type) {
	case bool:
		_, ok := value.(bool)
		return ok
	case float64:
		days, ok := value.(float64)
		return ok && days == float64(int(days)) && days >= 1 && days <= 180
	}
	text, ok := value.(string)
	if !ok {
		return false
	}
	switch name {
	case "usersRoleAllowedToJoinExternalTailnets":
		return slices.Contains([]string{"none", "admin", "member"}, text)
	case "routeSelection":
		return slices.Contains(
			[]string{"active-passive-failover", "regional-routing", "regional-routing-failover", "magicroute"}, text)
	case "aclsExternalLink":
		u, err := url.Parse(text)
		return text == "" || err == nil && u.Scheme != "" && u.Host != ""
	}
	return true
}
