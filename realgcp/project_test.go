//go:build realgcp

package realgcp

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/bigtable"
	"cloud.google.com/go/pubsub/v2"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/api/iterator"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/bigtable-functions/bigtable-functions/emulator"
	"github.com/bigtable-functions/bigtable-functions/internal/btrpc"
	"github.com/bigtable-functions/bigtable-functions/internal/functest"
	"github.com/bigtable-functions/bigtable-functions/internal/googleemu"
)

// cloud is the project in which everything is created, under one id.
type cloud struct {
	t           *testing.T
	project, id string
	emulated    bool
	instances   *bigtable.InstanceAdminClient
	tables      *bigtable.AdminClient
	topics      *pubsub.Client
	data        grpc.ClientConnInterface
	ledger      string
}

// connect reaches the project with application default credentials, as a deployment does.
func connect(t *testing.T) *cloud {
	t.Helper()
	c := &cloud{t: t, project: os.Getenv("BTF_REAL_PROJECT"), id: ID(time.Now(), strings.ToLower(rand.Text()[:2]))}
	switch c.project {
	case "":
		t.Skip("BTF_REAL_PROJECT names no project to create an instance in, which costs money")
	case "emulators":
		_, _, addr := functest.BigtableOverTCP(t, emulator.Options{})
		t.Setenv("BIGTABLE_EMULATOR_HOST", addr)
		t.Setenv("PUBSUB_EMULATOR_HOST", googleemu.Start(t, "pubsub"))
		c.emulated = true
	}
	c.ledger = "file:" + t.TempDir() + "/ledger.db"
	if database := os.Getenv("BTF_REAL_DATABASE"); database != "" {
		c.ledger = "firestore:" + c.project + "/" + database
	}
	var err error
	c.instances, err = bigtable.NewInstanceAdminClient(t.Context(), c.project)
	c.must(err)
	t.Cleanup(func() { c.instances.Close() })
	c.topics, err = pubsub.NewClient(t.Context(), c.project)
	c.must(err)
	t.Cleanup(func() { c.topics.Close() })
	return c
}

// newCloud sweeps what older runs have left, and creates an instance that is deleted with the test.
func newCloud(t *testing.T) *cloud {
	t.Helper()
	c := connect(t)
	c.sweep(func(id string) bool { return IsStale(id, time.Now()) })

	ctx := t.Context()
	c.create()
	t.Cleanup(func() { c.sweep(func(id string) bool { return id == c.id }) })
	for name, routing := range map[string]bigtable.RoutingPolicyConfig{
		"single": &bigtable.SingleClusterRoutingConfig{ClusterID: c.id + "-c1", AllowTransactionalWrites: true},
		"plain":  &bigtable.SingleClusterRoutingConfig{ClusterID: c.id + "-c1"},
		"multi":  &bigtable.MultiClusterRoutingUseAnyConfig{},
	} {
		_, err := c.instances.CreateAppProfile(ctx, bigtable.ProfileConf{InstanceID: c.id, ProfileID: name, RoutingConfig: routing, Description: name})
		c.must(err)
	}
	dialer, err := btrpc.NewDialer(btrpc.DialConfig{Emulator: os.Getenv("BIGTABLE_EMULATOR_HOST"), UserAgent: "btf-real"})
	c.must(err)
	data, err := dialer.Data(ctx)
	c.must(err)
	t.Cleanup(func() { data.Close() })
	c.data = data
	return c
}

// create makes the instance.
func (c *cloud) create() {
	c.t.Helper()
	c.t.Logf("creating the instance %s", c.id)
	c.must(c.instances.CreateInstance(c.t.Context(), &bigtable.InstanceConf{
		InstanceId: c.id, DisplayName: c.id, ClusterId: c.id + "-c1", Zone: cmp.Or(os.Getenv("BTF_REAL_ZONE"), "us-central1-b"),
		InstanceType: bigtable.PRODUCTION, NumNodes: 1, StorageType: bigtable.SSD, Labels: map[string]string{"made-by": "btf-real"},
	}))
	var err error
	c.tables, err = bigtable.NewAdminClient(c.t.Context(), c.project, c.id)
	c.must(err)
	c.t.Cleanup(func() { c.tables.Close() })
}

func (c *cloud) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

// sweep deletes the instances and topics whose id is to go. It runs after the test, too, whose
// context has ended then.
func (c *cloud) sweep(goes func(id string) bool) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	all, err := c.instances.Instances(ctx)
	if err != nil {
		c.t.Errorf("listing instances to sweep: %v", err)
	}
	for _, i := range all {
		if id := i.Name[strings.LastIndex(i.Name, "/")+1:]; goes(id) {
			c.t.Logf("deleting the instance %s", id)
			if err := c.remove(ctx, id); err != nil {
				c.t.Errorf("deleting the instance %s, which goes on costing money: %v", id, err)
			}
		}
	}
	if err := c.sweepTopics(ctx, goes); err != nil {
		c.t.Errorf("deleting topics: %v", err)
	}
}

// remove deletes an instance. One that has a table with a change stream cannot be deleted.
func (c *cloud) remove(ctx context.Context, id string) error {
	tables, err := bigtable.NewAdminClient(ctx, c.project, id)
	if err != nil {
		return err
	}
	defer tables.Close()
	names, err := tables.Tables(ctx)
	if err != nil {
		return err
	}
	for _, name := range names {
		info, err := tables.TableInfo(ctx, name)
		if err != nil {
			return err
		}
		if info.ChangeStreamRetention != nil {
			if err := tables.UpdateTableDisableChangeStream(ctx, name); err != nil {
				return err
			}
		}
	}
	return c.instances.DeleteInstance(ctx, id)
}

// sweepTopics deletes the topics and subscriptions that begin with an id that is to go.
func (c *cloud) sweepTopics(ctx context.Context, goes func(id string) bool) error {
	begins := func(name string) bool {
		short := name[strings.LastIndex(name, "/")+1:]
		return len(short) > len(c.id) && goes(short[:len(c.id)])
	}
	var errs []error
	subscriptions := c.topics.SubscriptionAdminClient.ListSubscriptions(ctx, &pubsubpb.ListSubscriptionsRequest{Project: "projects/" + c.project})
	for s, err := subscriptions.Next(); err != iterator.Done; s, err = subscriptions.Next() {
		if err != nil {
			return errors.Join(append(errs, err)...)
		}
		if begins(s.Name) {
			errs = append(errs, c.topics.SubscriptionAdminClient.DeleteSubscription(ctx, &pubsubpb.DeleteSubscriptionRequest{Subscription: s.Name}))
		}
	}
	topics := c.topics.TopicAdminClient.ListTopics(ctx, &pubsubpb.ListTopicsRequest{Project: "projects/" + c.project})
	for topic, err := topics.Next(); err != iterator.Done; topic, err = topics.Next() {
		if err != nil {
			return errors.Join(append(errs, err)...)
		}
		if begins(topic.Name) {
			errs = append(errs, c.topics.TopicAdminClient.DeleteTopic(ctx, &pubsubpb.DeleteTopicRequest{Topic: topic.Name}))
		}
	}
	return errors.Join(errs...)
}

// table is the full name of a table of the instance.
func (c *cloud) table(name string) string {
	return "projects/" + c.project + "/instances/" + c.id + "/tables/" + name
}

// through returns a context for calls on a table through an application profile: the service routes
// them by these headers.
func (c *cloud) through(ctx context.Context, table, profile string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "x-goog-request-params",
		"table_name="+url.QueryEscape(c.table(table))+"&app_profile_id="+url.QueryEscape(profile))
}
