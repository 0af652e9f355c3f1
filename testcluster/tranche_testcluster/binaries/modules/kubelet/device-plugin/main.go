// Command device-plugin advertises devices that do not exist to a real kubelet, so that a test node has GPUs.
//
// The file -devices has one line for each device: its ID, followed by the word Unhealthy if it has failed. The file is
// read again several times a second. A container receives the IDs of its devices in TRANCHE_DEVICES.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

const poll = 200 * time.Millisecond

type plugin struct {
	api.UnimplementedDevicePluginServer
	file string
}

func (p *plugin) devices() ([]*api.Device, error) {
	text, err := os.ReadFile(p.file)
	if err != nil {
		return nil, err
	}
	var devices []*api.Device
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		health := api.Healthy
		if slices.Contains(words[1:], api.Unhealthy) {
			health = api.Unhealthy
		}
		devices = append(devices, &api.Device{ID: words[0], Health: health})
	}
	return devices, nil
}

func (p *plugin) GetDevicePluginOptions(context.Context, *api.Empty) (*api.DevicePluginOptions, error) {
	return &api.DevicePluginOptions{}, nil
}

func (p *plugin) ListAndWatch(_ *api.Empty, stream grpc.ServerStreamingServer[api.ListAndWatchResponse]) error {
	sent := "none yet"
	for {
		devices, err := p.devices()
		if err != nil {
			return err
		}
		if state := fmt.Sprint(devices); state != sent {
			if err := stream.Send(&api.ListAndWatchResponse{Devices: devices}); err != nil {
				return err
			}
			sent = state
		}
		select {
		case <-stream.Context().Done():
			return nil
		case <-time.After(poll):
		}
	}
}

func (p *plugin) Allocate(_ context.Context, request *api.AllocateRequest) (*api.AllocateResponse, error) {
	answer := &api.AllocateResponse{}
	for _, container := range request.ContainerRequests {
		environment := map[string]string{"TRANCHE_DEVICES": strings.Join(container.DevicesIds, ",")}
		answer.ContainerResponses = append(answer.ContainerResponses, &api.ContainerAllocateResponse{Envs: environment})
	}
	return answer, nil
}

func register(folder, socket, resource string) error {
	target := "unix://" + filepath.Join(folder, "kubelet.sock")
	connection, err := grpc.NewClient(target, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer connection.Close()
	request := &api.RegisterRequest{Version: api.Version, Endpoint: socket, ResourceName: resource}
	_, err = api.NewRegistrationClient(connection).Register(context.Background(), request, grpc.WaitForReady(true))
	return err
}

// serve registers the plugin and returns when the kubelet has removed its socket, as it does when it starts again.
func (p *plugin) serve(folder, resource string) error {
	name := "tranche-" + strings.ReplaceAll(resource, "/", "-") + ".sock"
	path := filepath.Join(folder, name)
	if err := os.RemoveAll(path); err != nil {
		return err
	}
	listener, err := net.Listen("unix", path)
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	defer server.Stop()
	api.RegisterDevicePluginServer(server, p)
	go func() {
		if err := server.Serve(listener); err != nil {
			log.Fatal(err)
		}
	}()
	if err := register(folder, name, resource); err != nil {
		return err
	}
	log.Printf("registered %s", resource)
	for {
		if _, err := os.Stat(path); err != nil {
			return nil
		}
		time.Sleep(poll)
	}
}

func main() {
	folder := flag.String("folder", "/var/lib/kubelet/device-plugins", "folder of the kubelet's registration socket")
	resource := flag.String("resource", "nvidia.com/gpu", "resource name of the devices")
	file := flag.String("devices", "", "file with one device on each line")
	flag.Parse()
	p := &plugin{file: *file}
	for {
		if err := p.serve(*folder, *resource); err != nil {
			log.Fatal(err)
		}
	}
}
