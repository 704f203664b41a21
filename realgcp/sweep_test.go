//go:build realgcp

package realgcp

import (
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/bigtable"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/api/iterator"
)

// What a run left that was interrupted three hours ago goes, though its table has a change stream. What
// another run uses stays, and what is not ours.
//
// covers: TST-07
func TestWhatAnInterruptedRunHasLeftIsSwept(t *testing.T) {
	c := connect(t)
	if !c.emulated {
		t.Skip("a project is not filled with what a test has made up")
	}
	for _, id := range []string{ID(time.Now().Add(-3*time.Hour), "aa"), ID(time.Now(), "bb"), "my-instance"} {
		c.id = id
		c.create()
		c.must(c.tables.CreateTableFromConf(t.Context(), &bigtable.TableConf{
			TableID: "orders", ChangeStreamRetention: 24 * time.Hour, ColumnFamilies: map[string]bigtable.Family{"cf": {}},
		}))
		topic := "projects/" + c.project + "/topics/" + id + "-events"
		_, err := c.topics.TopicAdminClient.CreateTopic(t.Context(), &pubsubpb.Topic{Name: topic})
		c.must(err)
		_, err = c.topics.SubscriptionAdminClient.CreateSubscription(t.Context(), &pubsubpb.Subscription{
			Name: strings.Replace(topic, "/topics/", "/subscriptions/", 1), Topic: topic,
		})
		c.must(err)
	}
	c.id = ID(time.Now(), "cc")
	c.sweep(func(id string) bool { return IsStale(id, time.Now()) })

	var left []string
	instances, err := c.instances.Instances(t.Context())
	c.must(err)
	for _, i := range instances {
		left = append(left, i.Name)
	}
	topics := c.topics.TopicAdminClient.ListTopics(t.Context(), &pubsubpb.ListTopicsRequest{Project: "projects/" + c.project})
	for topic, err := topics.Next(); err != iterator.Done; topic, err = topics.Next() {
		c.must(err)
		left = append(left, topic.Name)
	}
	subscriptions := c.topics.SubscriptionAdminClient.ListSubscriptions(t.Context(), &pubsubpb.ListSubscriptionsRequest{Project: "projects/" + c.project})
	for s, err := subscriptions.Next(); err != iterator.Done; s, err = subscriptions.Next() {
		c.must(err)
		left = append(left, s.Name)
	}
	text := strings.Join(left, " ")
	if len(left) != 6 || strings.Contains(text, "aa-events") || strings.Contains(text, "aa ") {
		t.Errorf("left are %s", text)
	}
}
