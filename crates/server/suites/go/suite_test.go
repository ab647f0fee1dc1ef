// What a program written with go-redis counts on, told to the server at HOST:PORT and checked, by RESP2 and RESP3.
package suite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

var ctx = context.Background()

func connect(t *testing.T, protocol int) *redis.Client {
	client := redis.NewClient(&redis.Options{
		Addr:     os.Getenv("HOST") + ":" + os.Getenv("PORT"),
		Password: os.Getenv("REDIS_PASSWORD"),
		Protocol: protocol,
		PoolSize: 30,
		// A command that is answered late on a busy machine would be sent again, and done twice.
		ReadTimeout: time.Minute,
		DialTimeout: time.Minute,
		PoolTimeout: time.Minute,
		// Without it a context ends no pop that waits.
		ContextTimeoutEnabled: true,
	})
	t.Cleanup(func() { client.Close() })
	return client
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func equal(t *testing.T, found, expected any) {
	t.Helper()
	if !reflect.DeepEqual(found, expected) {
		t.Fatalf("%#v where %#v was expected", found, expected)
	}
}

// Each test runs by both protocols, on an empty server.
func each(t *testing.T, test func(t *testing.T, r *redis.Client)) {
	for _, protocol := range []int{2, 3} {
		t.Run(fmt.Sprintf("RESP%d", protocol), func(t *testing.T) {
			r := connect(t, protocol)
			must(t, r.FlushAll(ctx).Err())
			test(t, r)
		})
	}
}

func TestValues(t *testing.T) {
	each(t, func(t *testing.T, r *redis.Client) {
		equal(t, r.Ping(ctx).Val(), "PONG")
		must(t, r.Set(ctx, "k", "\x00\r\n\xff", time.Minute).Err())
		equal(t, r.Get(ctx, "k").Val(), "\x00\r\n\xff")
		equal(t, r.Get(ctx, "none").Err(), redis.Nil)
		equal(t, r.SetNX(ctx, "k", 1, 0).Val(), false)
		equal(t, r.IncrBy(ctx, "n", 5).Val(), int64(5))
		equal(t, r.HSet(ctx, "h", "a", 1, "b", 2).Val(), int64(2))
		equal(t, r.HGetAll(ctx, "h").Val(), map[string]string{"a": "1", "b": "2"})
		equal(t, r.RPush(ctx, "l", "a", "b", "c").Val(), int64(3))
		equal(t, r.LRange(ctx, "l", 0, -1).Val(), []string{"a", "b", "c"})
		equal(t, r.LPopCount(ctx, "l", 2).Val(), []string{"a", "b"})
		equal(t, r.Type(ctx, "l").Val(), "list")
		if ttl := r.TTL(ctx, "k").Val(); ttl <= 0 || ttl > time.Minute {
			t.Fatal(ttl)
		}
		if err := r.LPush(ctx, "k", 1).Err(); err == nil || !redis.HasErrorPrefix(err, "WRONGTYPE") {
			t.Fatal(err)
		}
		if err := r.Do(ctx, "NOSUCHCOMMAND").Err(); err == nil || !strings.Contains(err.Error(), "unknown command") {
			t.Fatal(err)
		}
		keys, iterator := []string{}, r.Scan(ctx, 0, "*", 2).Iterator()
		for iterator.Next(ctx) {
			keys = append(keys, iterator.Val())
		}
		slices.Sort(keys)
		equal(t, keys, []string{"h", "k", "l", "n"})
	})
}

func TestPipelines(t *testing.T) {
	each(t, func(t *testing.T, r *redis.Client) {
		replies, err := r.Pipelined(ctx, func(pipe redis.Pipeliner) error {
			for at := range 5000 {
				pipe.RPush(ctx, "l", at)
			}
			return nil
		})
		must(t, err)
		for at, reply := range replies {
			equal(t, reply.(*redis.IntCmd).Val(), int64(at+1))
		}
		replies, err = r.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
			pipe.RPush(ctx, "a", 1)
			pipe.Incr(ctx, "a")
			pipe.XAdd(ctx, &redis.XAddArgs{Stream: "s", ID: "7-7", Values: []string{"k", "v"}})
			return nil
		})
		if !redis.HasErrorPrefix(err, "WRONGTYPE") {
			t.Fatal(err)
		}
		equal(t, replies[2].(*redis.StringCmd).Val(), "7-7")
		equal(t, r.LLen(ctx, "a").Val(), int64(1))
		// What cannot be queued lets nothing happen.
		_, err = r.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
			pipe.RPush(ctx, "a", 2)
			pipe.Do(ctx, "NOSUCHCOMMAND")
			return nil
		})
		if err == nil {
			t.Fatal("a transaction with an unknown command went through")
		}
		equal(t, r.LLen(ctx, "a").Val(), int64(1))
	})
}

// Many who read, change and write back lose no change.
func TestWatch(t *testing.T) {
	each(t, func(t *testing.T, r *redis.Client) {
		var wait sync.WaitGroup
		for range 8 {
			wait.Add(1)
			go func() {
				defer wait.Done()
				for done := 0; done < 20; {
					err := r.Watch(ctx, func(tx *redis.Tx) error {
						number, err := tx.Get(ctx, "n").Int()
						if err != nil && err != redis.Nil {
							return err
						}
						_, err = tx.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
							pipe.Set(ctx, "n", number+1, 0)
							pipe.RPush(ctx, "l", number)
							return nil
						})
						return err
					}, "n")
					if err == nil {
						done++
					} else if !errors.Is(err, redis.TxFailedErr) {
						t.Error(err)
						return
					}
				}
			}()
		}
		wait.Wait()
		equal(t, r.Get(ctx, "n").Val(), "160")
		equal(t, r.LLen(ctx, "l").Val(), int64(160))
		equal(t, r.LIndex(ctx, "l", -1).Val(), "159")
	})
}

func TestBlockingPops(t *testing.T) {
	each(t, func(t *testing.T, r *redis.Client) {
		equal(t, r.BLPop(ctx, time.Second, "none").Err(), redis.Nil)
		jobs := make(chan string, 400)
		var wait sync.WaitGroup
		for range 4 {
			wait.Add(1)
			go func() {
				defer wait.Done()
				for {
					popped, err := r.BLPop(ctx, time.Minute, "first", "jobs").Result()
					if err != nil {
						t.Error(err)
						return
					}
					if popped[1] == "end" {
						return
					}
					jobs <- popped[1]
				}
			}()
		}
		for at := range 300 {
			must(t, r.RPush(ctx, "jobs", at).Err())
		}
		must(t, r.RPush(ctx, "jobs", "end", "end", "end", "end").Err())
		wait.Wait()
		close(jobs)
		seen := map[string]bool{}
		for job := range jobs {
			seen[job] = true
		}
		equal(t, len(seen), 300)
		// A context that ends while the pop waits.
		brief, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		defer cancel()
		if err := r.BLPop(brief, 0, "none").Err(); err == nil {
			t.Fatal("a pop that was given up brought something")
		}
		equal(t, r.Ping(ctx).Val(), "PONG")
	})
}

func TestStreams(t *testing.T) {
	each(t, func(t *testing.T, r *redis.Client) {
		for at := 1; at <= 3; at++ {
			must(t, r.XAdd(ctx, &redis.XAddArgs{Stream: "s", ID: fmt.Sprintf("%d-0", at), Values: map[string]any{"at": at}}).Err())
		}
		equal(t, r.XRange(ctx, "s", "2", "+").Val(), []redis.XMessage{
			{ID: "2-0", Values: map[string]any{"at": "2"}}, {ID: "3-0", Values: map[string]any{"at": "3"}}})
		go func() {
			for range 3000 {
				time.Sleep(20 * time.Millisecond)
				if strings.Contains(r.Info(ctx, "clients").Val(), "blocked_clients:1") {
					break
				}
			}
			r.XAdd(ctx, &redis.XAddArgs{Stream: "s", ID: "4-0", Values: map[string]any{"at": 4}})
		}()
		read, err := r.XRead(ctx, &redis.XReadArgs{Streams: []string{"s", "$"}, Block: 2 * time.Minute}).Result()
		must(t, err)
		equal(t, read[0].Messages[0].ID, "4-0")
		info, err := r.XInfoStream(ctx, "s").Result()
		must(t, err)
		equal(t, info.Length, int64(4))
		full, err := r.XInfoStreamFull(ctx, "s", 10).Result()
		must(t, err)
		equal(t, len(full.Entries), 4)
	})
}

func TestGroups(t *testing.T) {
	each(t, func(t *testing.T, r *redis.Client) {
		must(t, r.XGroupCreateMkStream(ctx, "s", "g", "$").Err())
		var wait sync.WaitGroup
		var lock sync.Mutex
		var added atomic.Bool
		seen := map[string]int{}
		for number := range 3 {
			wait.Add(1)
			go func() {
				defer wait.Done()
				for {
					last := added.Load()
					read, err := r.XReadGroup(ctx, &redis.XReadGroupArgs{Group: "g", Consumer: fmt.Sprint("c", number),
						Streams: []string{"s", ">"}, Count: 5, Block: 200 * time.Millisecond}).Result()
					if err == redis.Nil {
						if last {
							return
						}
						continue
					}
					if err != nil {
						t.Error(err)
						return
					}
					for _, message := range read[0].Messages {
						lock.Lock()
						seen[message.ID]++
						lock.Unlock()
						// Every tenth is left to be claimed.
						if message.Values["at"].(string)[0] != '9' {
							must(t, r.XAck(ctx, "s", "g", message.ID).Err())
						}
					}
				}
			}()
		}
		for at := range 100 {
			must(t, r.XAdd(ctx, &redis.XAddArgs{Stream: "s", Values: map[string]any{"at": at}}).Err())
		}
		added.Store(true)
		wait.Wait()
		equal(t, len(seen), 100)
		for id, times := range seen {
			if times != 1 {
				t.Fatalf("%s was given %d times", id, times)
			}
		}
		equal(t, r.XPending(ctx, "s", "g").Val().Count, int64(11))
		claimed, _, err := r.XAutoClaim(ctx, &redis.XAutoClaimArgs{Stream: "s", Group: "g", Consumer: "late", Start: "0", Count: 100}).Result()
		must(t, err)
		equal(t, len(claimed), 11)
		groups := r.XInfoGroups(ctx, "s").Val()
		equal(t, []int64{groups[0].Consumers, groups[0].Pending, groups[0].Lag}, []int64{4, 11, 0})
	})
}
