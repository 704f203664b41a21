package emulator

import (
	"time"

	"cloud.google.com/go/bigtable/admin/apiv2/adminpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
)

// Policies of a table that are kept and checked. The emulator takes no backup
// by itself and has one tier of storage.

const day = 24 * time.Hour

// setBackupPolicy makes p, nil for none, the automated backup policy.
func setBackupPolicy(info *adminpb.Table, p *adminpb.Table_AutomatedBackupPolicy) {
	info.AutomatedBackupConfig = nil
	if p != nil {
		info.AutomatedBackupConfig = &adminpb.Table_AutomatedBackupPolicy_{AutomatedBackupPolicy: p}
	}
}

// updateBackupPolicy sets one field of the automated backup policy, or all of
// it if field is "".
func updateBackupPolicy(info *adminpb.Table, update *adminpb.Table_AutomatedBackupPolicy, field string) error {
	if field == "" {
		setBackupPolicy(info, update)
		return nil
	}
	p := &adminpb.Table_AutomatedBackupPolicy{}
	if old := info.GetAutomatedBackupPolicy(); old != nil {
		p = proto.Clone(old).(*adminpb.Table_AutomatedBackupPolicy)
	}
	switch field {
	case "retention_period":
		p.RetentionPeriod = update.GetRetentionPeriod()
	case "frequency":
		p.Frequency = update.GetFrequency()
	case "locations":
		p.Locations = update.GetLocations()
	case "keep_hot_duration":
		p.KeepHotDuration = update.GetKeepHotDuration()
	case "disabled":
		p.Disabled = update.GetDisabled()
	default:
		return unknownPath("automated_backup_policy." + field)
	}
	setBackupPolicy(info, p)
	return nil
}

// checkBackupPolicy checks the bounds of table.proto, AutomatedBackupPolicy,
// and fills in the frequency.
func checkBackupPolicy(p *adminpb.Table_AutomatedBackupPolicy) error {
	if p == nil || p.Disabled {
		return nil
	}
	if d := p.GetRetentionPeriod().AsDuration(); d < 3*day || d > 90*day {
		return status.Error(codes.InvalidArgument, "Error in field 'automated_backup_policy.retention_period' : must be at least 3 days and at most 90 days")
	}
	if p.Frequency == nil {
		p.Frequency = durationpb.New(day)
	}
	if p.Frequency.AsDuration() != day {
		return status.Error(codes.InvalidArgument, "Error in field 'automated_backup_policy.frequency' : must be 24 hours")
	}
	if p.KeepHotDuration == nil {
		return nil
	}
	if d := p.KeepHotDuration.AsDuration(); d < day || d > min(10*day, p.RetentionPeriod.AsDuration()) {
		return status.Error(codes.InvalidArgument, "Error in field 'automated_backup_policy.keep_hot_duration' : must be at least 24 hours, at most 10 days and at most retention_period")
	}
	return nil
}

// checkTieredStorage checks that a rule is there and says an age.
func checkTieredStorage(c *adminpb.TieredStorageConfig) error {
	if c == nil {
		return nil
	}
	if c.GetInfrequentAccess().GetIncludeIfOlderThan().AsDuration() <= 0 {
		return status.Error(codes.InvalidArgument, "Error in field 'tiered_storage_config.infrequent_access' : include_if_older_than must be a positive duration")
	}
	return nil
}
