// rueidis: its client-side cache, by CLIENT TRACKING in the modes of a read and of prefixes; messages.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/redis/rueidis"
)

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func open(options []string) rueidis.Client {
	client, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress:           []string{os.Getenv("HOST") + ":" + os.Getenv("PORT")},
		ClientTrackingOptions: options,
	})
	check(err)
	return client
}

// useCache reads a key from the cache, and again after another client has changed it.
func useCache(ctx context.Context, options []string, key string) {
	reader, writer := open(options), open(nil)
	defer reader.Close()
	defer writer.Close()
	read := func() rueidis.RedisResult {
		return reader.DoCache(ctx, reader.B().Get().Key(key).Cache(), time.Minute)
	}
	for n := range 20 {
		value := fmt.Sprint("value ", n)
		check(writer.Do(ctx, writer.B().Set().Key(key).Value(value).Build()).Error())
		for {
			// The cache is invalidated a little later than the writer gets its reply, and with
			// prefixes perhaps even after the first read of the new value.
			result := read()
			got, err := result.ToString()
			if err == nil && got == value && result.IsCacheHit() {
				break
			}
			if err != nil && !rueidis.IsRedisNil(err) {
				panic(err)
			}
		}
	}
}

func useMessages(ctx context.Context) {
	receiver, sender := open(nil), open(nil)
	defer receiver.Close()
	defer sender.Close()
	heard := make(chan string, 100)
	subscribe := receiver.B().Psubscribe().Pattern("apps-go.*").Build()
	go func() {
		_ = receiver.Receive(ctx, subscribe, func(message rueidis.PubSubMessage) { heard <- message.Message })
	}()
	for {
		n, err := sender.Do(ctx, sender.B().Publish().Channel("apps-go.a").Message("hi").Build()).AsInt64()
		check(err)
		if n == 1 {
			break
		}
	}
	if <-heard != "hi" {
		panic("another message")
	}
}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 150*time.Second)
	defer cancel()
	useCache(ctx, nil, "apps-go:read")
	useCache(ctx, []string{"PREFIX", "apps-go:", "BCAST"}, "apps-go:prefix")
	useMessages(ctx)
	fmt.Println("reads came from the client's cache until each of 40 changes; a message came by a pattern")
}
