// Package filewatch guarantees that each change of a file is reported, also if an editor replaces
// the file by another, and that it is reported only when the file has been left alone for a moment.
package filewatch

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
)

// settle is how long a file must be left alone before it counts as changed: an editor
// empties it first, and writes or renames after.
const settle = 50 * time.Millisecond

// Watcher watches one file.
type Watcher struct {
	name string
	fs   *fsnotify.Watcher
}

// New begins to watch a file. Its directory is what is watched: many editors replace
// the file by another, and the new one would go unseen. The caller closes the Watcher.
func New(file string) (*Watcher, error) {
	name, err := filepath.Abs(file)
	if err != nil {
		return nil, fmt.Errorf("watching %s: %w", file, err)
	}
	fs, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, fmt.Errorf("watching %s: %w", file, err)
	}
	if err := fs.Add(filepath.Dir(name)); err != nil {
		return nil, fmt.Errorf("watching %s: %w", file, errors.Join(err, fs.Close()))
	}
	return &Watcher{name: name, fs: fs}, nil
}

// Close ends the watching.
func (w *Watcher) Close() error { return w.fs.Close() }

// Run calls changed after each change, until ctx ends or watching fails. A file that
// is moved away and back is a change too; whether its content is new is for the caller.
func (w *Watcher) Run(ctx context.Context, changed func()) error {
	timer := time.NewTimer(settle)
	timer.Stop()
	defer timer.Stop()
	for {
		select {
		case event := <-w.fs.Events:
			if event.Name == w.name && event.Op != fsnotify.Chmod {
				timer.Reset(settle)
			}
		case <-timer.C:
			changed()
		case err := <-w.fs.Errors:
			if errors.Is(err, fsnotify.ErrEventOverflow) { // the change may be among what was lost
				timer.Reset(settle)
				continue
			}
			return fmt.Errorf("watching %s: %w", w.name, err)
		case <-ctx.Done():
			return nil
		}
	}
}
