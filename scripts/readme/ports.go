package main

import (
	"errors"
	"fmt"
	"net"
)

// The ports that the blocks need, on loopback. relay dev goes without others.
var (
	tcpPorts = []int{3480, 4221, 4222, 4223, 6221, 6222, 6223, 7941, 7942, 7943, 7951, 7952, 8413, 8414, 8501, 8502, 8503, 8601, 8602}
	udpPorts = []int{3411, 3412, 3413, 3480, 7941, 7942, 7943, 7951, 7952}
)

// portsFree returns an error that names the ports which something else has. A block that fails for want of its port
// would say something that is hard to understand.
func portsFree(tcp, udp []int) error {
	var problems []error
	for _, port := range tcp {
		l, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port})
		problems = append(problems, tried("TCP", port, l, err))
	}
	for _, port := range udp {
		c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port})
		problems = append(problems, tried("UDP", port, c, err))
	}
	return errors.Join(problems...)
}

func tried(protocol string, port int, socket interface{ Close() error }, err error) error {
	if err == nil {
		err = socket.Close()
	}
	if err != nil {
		return fmt.Errorf("%s port %d, which the READMEs use: %w", protocol, port, err)
	}
	return nil
}
