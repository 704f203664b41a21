package localdeploy

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/bigtable-functions/bigtable-functions/internal/lint"
	"github.com/bigtable-functions/bigtable-functions/internal/localcloud"
	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
	"github.com/bigtable-functions/bigtable-functions/internal/push"
	"github.com/bigtable-functions/bigtable-functions/internal/task"
)

// service is one function over HTTP: its URL stays, its versions change.
type service struct {
	url      string
	versions versions
}

// startService serves a function that has no version yet.
func (d *Deployment) startService(ctx context.Context, id string) error {
	s := &service{versions: versions{grace: closeTimeout}}
	listener, err := listen(ctx)
	if err != nil {
		return fmt.Errorf("listening for the function %s: %w", id, err)
	}
	s.url = "http://" + listener.Addr().String() + "/"
	server := &http.Server{Handler: &s.versions, ReadHeaderTimeout: time.Minute}
	var serving sync.WaitGroup
	var served error
	serving.Go(func() { served = server.Serve(listener) })
	d.mu.Lock()
	d.services[id] = s
	d.mu.Unlock()
	d.open.Add(s.versions.close)
	d.open.Add(func() error {
		ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
		defer cancel()
		err := server.Shutdown(ctx)
		if err != nil {
			err = errors.Join(err, server.Close())
		}
		serving.Wait()
		if errors.Is(served, http.ErrServerClosed) {
			return err
		}
		return errors.Join(err, served)
	})
	return nil
}

// once makes what is not there.
func (d *Deployment) once(what string, create func() error) error {
	if d.made[what] {
		return nil
	}
	err := create()
	d.made[what] = err == nil
	return err
}

// createTopics makes the topics that the file needs and that are not there: its own, and
// those that its scans and change streams send to, each of these with a subscription to pull
// from.
func (d *Deployment) createTopics(ctx context.Context, loaded *lint.Loaded) error {
	for _, id := range loaded.Report.Resources.Topics {
		if err := d.createTopic(ctx, TopicName(id)); err != nil {
			return err
		}
	}
	var sinks []pipeline.Sink
	for _, s := range loaded.Pipeline.Scans {
		sinks = append(sinks, s.To)
	}
	for _, c := range loaded.Pipeline.Changes {
		sinks = append(sinks, c.To)
	}
	for _, to := range sinks {
		if to.PubSub == nil {
			continue
		}
		topic := TopicName(to.PubSub.Topic)
		if err := d.createTopic(ctx, topic); err != nil {
			return err
		}
		if err := d.createPull(ctx, topic, PullName(topic), pullDeadline); err != nil {
			return err
		}
	}
	return nil
}

// TopicName returns a topic's full name.
func TopicName(id string) string {
	if strings.HasPrefix(id, "projects/") {
		return id
	}
	return "projects/" + Project + "/topics/" + id
}

// PullName names the subscription to pull from that a topic has here.
func PullName(topic string) string { return strings.Replace(topic, "/topics/", "/subscriptions/", 1) }

func (d *Deployment) createTopic(ctx context.Context, name string) error {
	return d.once(name, func() error { return d.Cloud.CreateTopics(ctx, name) })
}

// pullDeadline is how long what was pulled from a topic of the user's is kept from
// others; Pub/Sub's default.
const pullDeadline = 10 * time.Second

func (d *Deployment) createPull(ctx context.Context, topic, name string, deadline time.Duration) error {
	return d.once(name, func() error { return d.Cloud.CreatePull(ctx, topic, name, deadline) })
}

func (d *Deployment) createPush(ctx context.Context, p localcloud.Push) error {
	return d.once("projects/"+Project+"/subscriptions/"+p.ID, func() (err error) {
		d.pushes[p.ID], err = d.Cloud.CreatePush(ctx, p)
		return err
	})
}

// subscribe makes the subscriptions that the file needs and that are not there, as they
// are deployed, and the services they push to.
func (d *Deployment) subscribe(ctx context.Context, loaded *lint.Loaded, releases map[lint.Principal]release) error {
	for _, s := range loaded.Report.Resources.Services {
		if _, built := releases[s.Function]; !built {
			continue
		}
		if err := d.once("service "+s.ID, func() error { return d.startService(ctx, s.ID) }); err != nil {
			return err
		}
	}
	for _, s := range loaded.Report.Resources.Subscriptions {
		if err := d.createSubscription(ctx, &s); err != nil {
			return err
		}
	}
	if len(loaded.Pipeline.Scans) == 0 {
		return nil
	}
	done := TopicName(pipeline.TopicScanDone.Of(loaded.Pipeline.Name))
	if err := d.createPull(ctx, done, PullName(done), pullDeadline); err != nil {
		return err
	}
	return d.listenForDone(ctx, pipeline.TopicScanDone.Of(loaded.Pipeline.Name))
}

// createSubscription makes one that is not there. Of one that would push to what does
// not run here there is none.
func (d *Deployment) createSubscription(ctx context.Context, s *lint.Subscription) error {
	if s.Service == "" {
		topic := TopicName(s.Topic)
		return d.createPull(ctx, topic, PullName(topic), time.Duration(s.AckDeadline))
	}
	to := d.services[s.Service]
	if to == nil {
		return nil
	}
	p := localcloud.PushOf(s)
	p.Endpoint = to.url
	return d.createPush(ctx, p)
}

// listenForDone has finished told of completion events.
func (d *Deployment) listenForDone(ctx context.Context, topic string) error {
	handler := push.Handler(push.Config{Budget: time.Minute, Logger: d.Logger}, func(_ context.Context, in *push.Delivery) error {
		done, err := task.DecodeScanDone(in.Message.Data)
		if err != nil {
			return nil // somebody else's message, which is nothing to act on
		}
		d.Finished(done)
		return nil
	})
	return d.createPush(ctx, localcloud.Push{
		ID: topic + "-told", Topic: topic, Handler: handler, AckDeadline: time.Minute,
		MinBackoff: 10 * time.Second, MaxBackoff: time.Minute, Retention: time.Hour,
	})
}
