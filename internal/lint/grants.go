package lint

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
)

// Principal is who gets a role.
type Principal string

// Values of Principal. Each function of a pipeline has a service account of its own,
// called NAME-FUNCTION.
const (
	Write       Principal = "write"
	ScanPlanner Principal = "scan-planner"
	ScanWorker  Principal = "scan-worker"
	Changes     Principal = "changes"
	Pusher      Principal = "push"         // the account that Pub/Sub's pushes carry
	Scheduler   Principal = "scheduler"    // the account that Cloud Scheduler's requests carry
	PubSubAgent Principal = "pubsub-agent" // service-NUMBER@gcp-sa-pubsub.iam.gserviceaccount.com
	Deployer    Principal = "deployer"     // who applies Terraform

	SchedulerAgent Principal = "scheduler-agent" // service-NUMBER@gcp-sa-cloudscheduler.iam.gserviceaccount.com
)

// Target is what a role is granted on. Name is the resource's id or, of tables and
// instances and where the file says so, its full name.
type Target struct {
	Kind string `json:"kind"` // table, authorizedView, instance, topic, subscription, service, serviceAccount, database, bucket, queue, secret
	Name string `json:"name"`
}

// Grant is one role that a pipeline needs, and for what. The roles are the narrowest
// predefined ones.
type Grant struct {
	Principal Principal `json:"principal"`
	Role      string    `json:"role"`
	On        Target    `json:"on"`
	Why       string    `json:"why"`
	// Command grants it, if Terraform has no resource for it. PRINCIPAL stands for the address of
	// the principal's service account.
	Command string `json:"command,omitempty"`
}

// Roles that pipelines need.
const (
	roleBigtableUser   = "roles/bigtable.user"
	roleBigtableReader = "roles/bigtable.reader"
	roleBigtableAdmin  = "roles/bigtable.admin"
	rolePublisher      = "roles/pubsub.publisher"
	roleSubscriber     = "roles/pubsub.subscriber"
	roleInvoker        = "roles/run.invoker"
	roleLedger         = "roles/datastore.user"
	roleSecret         = "roles/secretmanager.secretAccessor"
	roleObjectCreator  = "roles/storage.objectCreator"
	roleObjectViewer   = "roles/storage.objectViewer"
	roleEnqueuer       = "roles/cloudtasks.enqueuer"
	roleActAs          = "roles/iam.serviceAccountUser"
	roleTokenCreator   = "roles/iam.serviceAccountTokenCreator"
)

// ledgerDatabase stands for the Firestore database that LEDGER names.
const ledgerDatabase = "LEDGER"

// granter collects the grants of one pipeline.
type granter struct {
	p   *pipeline.Pipeline
	out []Grant
}

// grants derives them, by principal, each once.
func grants(p *pipeline.Pipeline) []Grant {
	g := &granter{p: p}
	g.writes()
	g.scans()
	g.changes()
	g.delivery(resources(p))
	slices.SortStableFunc(g.out, func(a, b Grant) int {
		return cmp.Or(
			cmp.Compare(slices.Index(principals, a.Principal), slices.Index(principals, b.Principal)),
			strings.Compare(a.Role, b.Role), strings.Compare(a.On.Kind, b.On.Kind), strings.Compare(a.On.Name, b.On.Name),
		)
	})
	out := slices.CompactFunc(g.out, func(a, b Grant) bool {
		return a.Principal == b.Principal && a.Role == b.Role && a.On == b.On
	})
	all := slices.Clone(out)
	return slices.DeleteFunc(out, func(a Grant) bool {
		return slices.ContainsFunc(all, func(b Grant) bool { return b.includes(a) })
	})
}

// bigtableRoles are the roles of Bigtable that pipelines need. Each includes those before it.
var bigtableRoles = []string{roleBigtableReader, roleBigtableUser, roleBigtableAdmin}

// includes reports whether a grant gives all that another one gives, and more: a role of
// Bigtable on the same table or on its instance that includes the other role.
func (b Grant) includes(a Grant) bool {
	lower, higher := slices.Index(bigtableRoles, a.Role), slices.Index(bigtableRoles, b.Role)
	if a.Principal != b.Principal || lower < 0 || higher < lower {
		return false
	}
	if a.On == b.On {
		return higher > lower
	}
	return b.On.Kind == "instance" && a.On.Kind == "table" && strings.HasPrefix(a.On.Name, b.On.Name+"/")
}

var principals = []Principal{Write, ScanPlanner, ScanWorker, Changes, Pusher, Scheduler, SchedulerAgent, PubSubAgent, Deployer}

func (g *granter) add(who Principal, role, kind, name, why string) {
	g.out = append(g.out, Grant{Principal: who, Role: role, On: Target{kind, name}, Why: why})
}

func (g *granter) own(t pipeline.Topic) string { return t.Of(g.p.Name) }

// account is the id of the service account of a principal.
func (g *granter) account(of Principal) string { return g.p.Name + "-" + string(of) }

// table grants a role on a table, on the authorized view through which it is used, or on the
// instance of tables whose ids are computed.
func (g *granter) table(who Principal, role string, t *pipeline.Table, why string) {
	if t.AuthorizedView != "" && t.IDFrom.IsZero() {
		g.out = append(g.out, Grant{
			Principal: who, Role: role, On: Target{"authorizedView", t.Ref().String() + "/authorizedViews/" + t.AuthorizedView}, Why: why,
			Command: fmt.Sprintf("gcloud bigtable authorized-views add-iam-policy-binding %s --project=%s --instance=%s --table=%s --member=serviceAccount:PRINCIPAL --role=%s",
				t.AuthorizedView, t.Project, t.Instance, t.ID, role),
		})
		return
	}
	if !t.IDFrom.IsZero() {
		g.add(who, role, "instance", t.Ref().Parent(), why+"; the ids of its tables are computed")
		return
	}
	g.add(who, role, "table", t.Ref().String(), why)
}

func (g *granter) writes() {
	w := g.p.Write
	if w == nil {
		return
	}
	for _, t := range written(g.p) {
		g.table(Write, roleBigtableUser, t, "writes rows")
		if t.Create == pipeline.CreateIfNeeded {
			g.add(Write, roleBigtableAdmin, "instance", t.Ref().Parent(), "create: if-needed makes tables and families (bigtable.tables.create, bigtable.tables.update)")
		}
	}
	if w.OnFailure == pipeline.PolicyDeadLetter || w.OnUnmatched == pipeline.PolicyDeadLetter {
		g.deadLetters(Write)
	}
}

// written returns the tables that the function write may write, in the file's order.
func written(p *pipeline.Pipeline) []*pipeline.Table {
	if p.Write.Format == pipeline.FormatMutation {
		return p.Tables
	}
	var out []*pipeline.Table
	for _, t := range p.Tables {
		if slices.ContainsFunc(p.Write.Mappings, func(m *pipeline.Mapping) bool { return m.Table == t }) {
			out = append(out, t)
		}
	}
	return out
}

func (g *granter) deadLetters(who Principal) {
	g.add(who, rolePublisher, "topic", g.own(pipeline.TopicDeadLetter), "keeps what can never be written or sent")
}

func (g *granter) ledger(who Principal) {
	g.add(who, roleLedger, "database", ledgerDatabase, "remembers progress; an IAM condition can restrict it to this database")
}

func (g *granter) scans() {
	if len(g.p.Scans) == 0 {
		return
	}
	for _, who := range []Principal{ScanPlanner, ScanWorker} {
		g.ledger(who)
		g.add(who, rolePublisher, "topic", g.own(pipeline.TopicScanTasks), "hands out and continues splits")
		g.add(who, rolePublisher, "topic", g.own(pipeline.TopicScanDone), "tells of finished scans")
	}
	for _, s := range g.p.Scans {
		g.table(ScanPlanner, roleBigtableReader, s.Table, "samples row keys")
		g.table(ScanWorker, roleBigtableReader, s.Table, "reads rows")
		if s.To.Served() == nil {
			g.sink(ScanWorker, s.To, "scan "+s.Name)
		}
		if s.OnFailure == pipeline.PolicyDeadLetter {
			g.deadLetters(ScanWorker)
		}
	}
}

func (g *granter) changes() {
	if len(g.p.Changes) == 0 {
		return
	}
	g.ledger(Changes)
	g.add(Changes, rolePublisher, "topic", g.own(pipeline.TopicChangeTasks), "fans out read tasks")
	for _, c := range g.p.Changes {
		g.table(Changes, roleBigtableAdmin, c.Table, "reads the change stream: the role that Google's documentation names for it")
		g.sink(Changes, c.To, "changes "+c.Name)
		if c.OnFailure == pipeline.PolicyDeadLetter {
			g.deadLetters(Changes)
		}
	}
}

// sink grants what it takes to deliver to a sink.
func (g *granter) sink(who Principal, s pipeline.Sink, of string) {
	switch {
	case s.PubSub != nil:
		g.add(who, rolePublisher, "topic", s.PubSub.Topic, of+" publishes there")
	case s.HTTP != nil:
		for _, secret := range []string{s.HTTP.Auth.Bearer, s.HTTP.Auth.HMACKey} {
			if secret != "" {
				g.add(who, roleSecret, "secret", secret, of+" proves with it who sends")
			}
		}
	case s.Tasks != nil:
		g.add(who, roleEnqueuer, "queue", s.Tasks.Location+"/"+s.Tasks.Queue, of+" makes tasks there")
		if s.Tasks.ServiceAccount != "" {
			g.add(who, roleActAs, "serviceAccount", s.Tasks.ServiceAccount, "the tasks of "+of+" carry its token")
		}
	case s.GCS != nil:
		g.add(who, roleObjectCreator, "bucket", s.GCS.Bucket, of+" writes objects there")
		g.add(who, roleObjectViewer, "bucket", s.GCS.Bucket, of+" adopts objects that are there already")
	case s.Bigtable != nil:
		g.table(who, roleBigtableUser, s.Bigtable.Table, of+" copies rows there")
	}
}

// delivery grants what brings work to the functions.
func (g *granter) delivery(r Resources) {
	push := g.account(Pusher)
	for _, s := range r.Subscriptions {
		if s.Service == "" {
			continue
		}
		g.add(Pusher, roleInvoker, "service", s.Service, "delivers "+s.ID)
		g.add(PubSubAgent, roleTokenCreator, "serviceAccount", push, "signs pushes; needed where the agent is older than 8 April 2021")
		g.add(Deployer, roleActAs, "serviceAccount", push, "makes subscriptions that push with its token")
		if s.DeadLetterTopic != "" {
			g.add(PubSubAgent, rolePublisher, "topic", s.DeadLetterTopic, "moves there what was refused too often")
			g.add(PubSubAgent, roleSubscriber, "subscription", s.ID, "moves away what was refused too often")
		}
	}
	for _, s := range r.Schedules {
		if s.Topic != "" {
			g.add(SchedulerAgent, rolePublisher, "topic", s.Topic, "starts "+s.ID+"; its own role, roles/cloudscheduler.serviceAgent, has this already")
			continue
		}
		g.add(Scheduler, roleInvoker, "service", s.Service, "starts "+s.ID)
		g.add(Deployer, roleActAs, "serviceAccount", g.account(Scheduler), "makes schedules that call with its token")
	}
	for _, s := range r.Services {
		g.add(Deployer, roleActAs, "serviceAccount", s.ID, "deploys a service that runs as it")
		g.add(Deployer, "roles/run.admin", "service", s.ID, "deploys it")
	}
}
