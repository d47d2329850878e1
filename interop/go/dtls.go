package main

import (
	"crypto/tls"
	"fmt"
	"net"
	"time"

	"github.com/pion/dtls/v3"
)

// dtlsServer echoes messages over DTLS 1.2. It knows no SRTP profile, as most programs that are not for media.
func dtlsServer(certFile, keyFile string) {
	certificate, err := tls.LoadX509KeyPair(certFile, keyFile)
	check("certificate", err)
	listener, err := dtls.ListenWithOptions("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)},
		dtls.WithCertificates(certificate), dtls.WithExtendedMasterSecret(dtls.RequireExtendedMasterSecret))
	check("listening", err)
	fmt.Printf("port %d\n", listener.Addr().(*net.UDPAddr).Port)
	for {
		conn, err := listener.Accept()
		if err != nil {
			fmt.Printf("refused: %v\n", err)
			continue
		}
		go echo(conn)
	}
}

func echo(conn net.Conn) {
	defer conn.Close()
	message := make([]byte, 4096)
	for {
		n, err := conn.Read(message)
		if err != nil {
			fmt.Printf("ended: %v\n", err)
			return
		}
		if _, err := conn.Write(message[:n]); err != nil {
			return
		}
	}
}

// dtlsClient sends a message and takes it back.
func dtlsClient(port, certFile string) {
	remote, err := net.ResolveUDPAddr("udp", "127.0.0.1:"+port)
	check("address", err)
	conn, err := dtls.DialWithOptions("udp", remote, dtls.WithRootCAs(trust(certFile)), dtls.WithServerName("localhost"),
		dtls.WithExtendedMasterSecret(dtls.RequireExtendedMasterSecret))
	check("connecting", err)
	conn.SetDeadline(time.Now().Add(10 * time.Second))
	_, err = conn.Write([]byte("a word from pion"))
	check("sending", err)
	message := make([]byte, 4096)
	n, err := conn.Read(message)
	check("receiving", err)
	if string(message[:n]) != "a word from pion" {
		check("echo", fmt.Errorf("%q came back", message[:n]))
	}
	check("closing", conn.Close())
	fmt.Println("ok")
}
