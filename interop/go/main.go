// A peer in Go: quic-go and pion/dtls as echo servers and as clients of one.
//
//	peer server CERT KEY          prints "port N", echoes streams, answers one-way streams, echoes datagrams
//	peer client PORT CERT         the counterpart; prints "ok" at the end
//	peer http3 CERT KEY DIR       serves the files of a folder in HTTP/3; prints "port N"
//	peer fetch URL CERT FILE      fetches in HTTP/3 into a file; prints "ok"
//	peer dtls-server CERT KEY     prints "port N", echoes messages
//	peer dtls-client PORT CERT    the counterpart; prints "ok"
//
// Every event is a line, for the tests to wait for.
package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
)

const (
	alpn      = "echo"
	closeCode = 42
	bulk      = 300_000
)

func check(what string, err error) {
	if err != nil {
		fmt.Printf("failed: %s: %v\n", what, err)
		os.Exit(1)
	}
}

func config() *quic.Config {
	return &quic.Config{EnableDatagrams: true, MaxIdleTimeout: 10 * time.Second}
}

func closed(err error) {
	var application *quic.ApplicationError
	if errors.As(err, &application) {
		fmt.Printf("closed code=%d reason=%s remote=%t\n", application.ErrorCode, application.ErrorMessage, application.Remote)
	} else {
		fmt.Printf("ended: %v\n", err)
	}
}

func serve(conn *quic.Conn) {
	ctx := conn.Context()
	go func() {
		for {
			stream, err := conn.AcceptStream(ctx)
			if err != nil {
				return
			}
			go func() {
				n, err := io.Copy(stream, stream)
				fmt.Printf("stream %d: %d bytes %v\n", stream.StreamID(), n, err)
				stream.Close()
			}()
		}
	}()
	go func() {
		for {
			stream, err := conn.AcceptUniStream(ctx)
			if err != nil {
				return
			}
			text, err := io.ReadAll(stream)
			fmt.Printf("one-way %q %v\n", text, err)
			if string(text) == "close me" {
				conn.CloseWithError(closeCode, "as you wish")
				return
			}
			back, err := conn.OpenUniStream()
			check("one-way back", err)
			back.Write(bytes.ToUpper(text))
			back.Close()
		}
	}()
	for {
		datagram, err := conn.ReceiveDatagram(ctx)
		if err != nil {
			closed(context.Cause(ctx))
			return
		}
		conn.SendDatagram(datagram)
	}
}

func server(certFile, keyFile string) {
	cert, err := tls.LoadX509KeyPair(certFile, keyFile)
	check("certificate", err)
	socket, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	check("socket", err)
	listener, err := quic.Listen(socket, &tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: []string{alpn}}, config())
	check("listen", err)
	fmt.Printf("port %d\n", socket.LocalAddr().(*net.UDPAddr).Port)
	for {
		conn, err := listener.Accept(context.Background())
		check("accept", err)
		go serve(conn)
	}
}

func trust(certFile string) *x509.CertPool {
	pem, err := os.ReadFile(certFile)
	check("certificate", err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	return roots
}

func serveHTTP3(certFile, keyFile, dir string) {
	cert, err := tls.LoadX509KeyPair(certFile, keyFile)
	check("certificate", err)
	socket, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	check("socket", err)
	fmt.Printf("port %d\n", socket.LocalAddr().(*net.UDPAddr).Port)
	conf := http3.ConfigureTLSConfig(&tls.Config{Certificates: []tls.Certificate{cert}})
	server := http3.Server{Handler: http.FileServer(http.Dir(dir)), TLSConfig: conf}
	check("serve", server.Serve(socket))
}

func fetch(url, certFile, file string) {
	transport := &http3.Transport{TLSClientConfig: &tls.Config{RootCAs: trust(certFile)}}
	defer transport.Close()
	response, err := (&http.Client{Transport: transport, Timeout: 10 * time.Second}).Get(url)
	check("get", err)
	out, err := os.Create(file)
	check("create", err)
	n, err := io.Copy(out, response.Body)
	check("body", err)
	check("close", out.Close())
	fmt.Printf("%s %s %d bytes\nok\n", response.Proto, response.Status, n)
}

func client(port, certFile string) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	roots := trust(certFile)
	conf := &tls.Config{RootCAs: roots, NextProtos: []string{alpn}, ServerName: "localhost"}
	conn, err := quic.DialAddr(ctx, "127.0.0.1:"+port, conf, config())
	check("dial", err)
	for i := range 3 {
		stream, err := conn.OpenStreamSync(ctx)
		check("open", err)
		data := bytes.Repeat([]byte{byte('a' + i)}, bulk)
		go func() {
			stream.Write(data)
			stream.Close()
		}()
		back, err := io.ReadAll(stream)
		check("read", err)
		if !bytes.Equal(back, data) {
			check("echo", fmt.Errorf("%d bytes came back", len(back)))
		}
	}
	check("close", conn.CloseWithError(closeCode, "from go"))
	fmt.Println("ok")
}

func main() {
	switch {
	case len(os.Args) == 4 && os.Args[1] == "server":
		server(os.Args[2], os.Args[3])
	case len(os.Args) == 4 && os.Args[1] == "client":
		client(os.Args[2], os.Args[3])
	case len(os.Args) == 4 && os.Args[1] == "dtls-server":
		dtlsServer(os.Args[2], os.Args[3])
	case len(os.Args) == 4 && os.Args[1] == "dtls-client":
		dtlsClient(os.Args[2], os.Args[3])
	case len(os.Args) == 5 && os.Args[1] == "http3":
		serveHTTP3(os.Args[2], os.Args[3], os.Args[4])
	case len(os.Args) == 5 && os.Args[1] == "fetch":
		fetch(os.Args[2], os.Args[3], os.Args[4])
	default:
		fmt.Println("usage: peer server CERT KEY | client PORT CERT | http3 CERT KEY DIR | fetch URL CERT FILE | dtls-server CERT KEY | dtls-client PORT CERT")
		os.Exit(2)
	}
}
