package pipeline

import (
	"strings"
	"testing"
)

func TestAScheduleThatIsNeverDueIsRefused(t *testing.T) {
	for _, cron := range []string{"0 0 31 2 *", "0 0 30 feb *", "0 0 31 2,4,jun-6 *", "* * 31 2/9 */2", "5 5 30,31 2 *"} {
		err := checkCron(cron)
		if err == nil || !strings.Contains(err.Error(), "is never due: no month of it has such a day") {
			t.Errorf("%s: %v", cron, err)
		}
	}
	for _, cron := range []string{"0 0 29 2 *", "0 0 31 * *", "0 0 31 2 mon", "0 0 */31 2 *", "0 0 31 2-3 *", "0 0 28-31 2 *", "0 0 30/1 4 *", "* * 31 */11 */2", "0 3 * * *"} {
		if err := checkCron(cron); err != nil {
			t.Errorf("%s: %v", cron, err)
		}
	}
}
