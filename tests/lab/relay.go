//go:build linux

package lab

import (
	"crypto/tls"
	"net"
	"net/http"
	"net/http/httptest"
	"time"

	"tailscale.com/derp/derpserver"
	"tailscale.com/net/stun"
	"tailscale.com/tailcfg"
	"tailscale.com/types/key"
	"tailscale.com/types/logger"
)

// relay is a DERP and a STUN server, the only region of the lab.
type relay struct {
	derp  *derpserver.Server
	https *http.Server
	port  int
	stun  *net.UDPConn
}

func listenTCP(addr string) (net.Listener, error) {
	return net.Listen("tcp4", net.JoinHostPort(addr, "0"))
}

func startRelay(addr string, logf logger.Logf) (*relay, error) {
	ln, err := listenTCP(addr)
	if err != nil {
		return nil, err
	}
	pc, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.ParseIP(addr)})
	if err != nil {
		ln.Close()
		return nil, err
	}
	ts := httptest.NewUnstartedServer(nil)
	ts.StartTLS() // only to get a self-signed certificate
	cert := ts.TLS.Certificates[0]
	ts.Close()
	r := &relay{derp: derpserver.New(key.NewNode(), logf), port: ln.Addr().(*net.TCPAddr).Port, stun: pc}
	r.https = &http.Server{
		Handler:      derpserver.Handler(r.derp),
		TLSConfig:    &tls.Config{Certificates: []tls.Certificate{cert}},
		TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){}, // DERP needs HTTP/1.1
		ErrorLog:     logger.StdLogger(logf),
	}
	go func() { _ = r.https.ServeTLS(ln, "", "") }() // until it is closed
	go serveSTUN(pc)
	return r, nil
}

func (r *relay) derpMap(addr string) *tailcfg.DERPMap {
	return &tailcfg.DERPMap{Regions: map[int]*tailcfg.DERPRegion{1: {
		RegionID: 1, RegionCode: "lab", RegionName: "lab",
		Nodes: []*tailcfg.DERPNode{{
			Name: "1a", RegionID: 1,
			HostName: addr, IPv4: addr, IPv6: "none", STUNTestIP: addr,
			DERPPort: r.port, STUNPort: r.stun.LocalAddr().(*net.UDPAddr).Port,
			InsecureForTests: true,
		}},
	}}}
}

func (r *relay) close() {
	r.https.Close()
	r.derp.Close()
	r.stun.Close()
}

func serveSTUN(pc *net.UDPConn) {
	buf := make([]byte, 1500)
	for {
		n, src, err := pc.ReadFromUDPAddrPort(buf)
		if err != nil {
			return
		}
		if tx, err := stun.ParseBindingRequest(buf[:n]); err == nil {
			// An instant answer can overtake the node's own note that it was able to send, upon which it rebinds its sockets.
			time.AfterFunc(5*time.Millisecond, func() {
				_, _ = pc.WriteToUDPAddrPort(stun.Response(tx, src), src)
			})
		}
	}
}
