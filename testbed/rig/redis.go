//go:build linux

package rig

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// withRedis calls f with a client of Redis that gives up after a second.
func (d *Deployment) withRedis(f func(*redis.Client) error) error {
	c := redis.NewClient(&redis.Options{Addr: d.RedisAddr(), DialTimeout: time.Second, ReadTimeout: time.Second, WriteTimeout: time.Second, MaxRetries: -1})
	defer c.Close()
	return f(c)
}

// TellRedis sends a command to Redis; only an error of the connection is reported.
func (d *Deployment) TellRedis(ctx context.Context, words ...any) error {
	return d.withRedis(func(c *redis.Client) error {
		err := c.Do(ctx, words...).Err()
		var answer redis.Error
		if errors.As(err, &answer) {
			return nil
		}
		return err
	})
}

// RedisCommands returns how many commands Redis has carried out.
func (d *Deployment) RedisCommands(ctx context.Context) (n uint64, err error) {
	if d.Redis == nil {
		return 0, errors.New("there is no Redis")
	}
	err = d.withRedis(func(c *redis.Client) error {
		text, err := c.Info(ctx, "stats").Result()
		if err != nil {
			return err
		}
		_, rest, _ := strings.Cut(text, "total_commands_processed:")
		line, _, _ := strings.Cut(rest, "\r")
		n, err = strconv.ParseUint(line, 10, 64)
		return err
	})
	return n, err
}
