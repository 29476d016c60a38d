// Package cosid gets IDs from the CosId agent's socket, ahead of need: most calls of Next find one in memory.
//
// An ID that was fetched is used up at the agent, and unique for ever, also after the slot was lost: to keep some is safe. Only
// their timestamps get older, so that they sort before what others make meanwhile: those older than MaxAge are left out.
package cosid

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"time"
)

const (
	// requestTimeout is how long one request to the agent may take. It itself waits up to 2 s for its window.
	requestTimeout = 3 * time.Second
	// How long to wait before the agent is asked again after a failure that passes.
	pause = 20 * time.Millisecond
	// An answer of the most IDs has less; what is longer comes from no agent.
	longestAnswer = 8 << 20
)

// Error is the agent's own word on why there is no ID: the reasons of docs/socket.md.
type Error struct {
	Status  int
	Reason  string
	Message string
}

func (e *Error) Error() string { return fmt.Sprintf("the agent says %s: %s", e.Reason, e.Message) }

// Options of a Source. What is zero has the value that the comment says.
type Options struct {
	Socket string        // the agent's; that of COSID_SOCKET
	Batch  int           // IDs of one request, 1 to 100000; 512
	MaxAge time.Duration // how old an ID that was fetched ahead may get; 1 s
}

type batch struct {
	ids     []uint64
	fetched time.Time
	err     error
}

// Source has the IDs of one generator. Goroutines may share it.
type Source struct {
	client  http.Client
	url     string
	maxAge  time.Duration
	batches chan batch
	current chan batch // holds the one batch that is being used: whoever has it may take an ID
	stop    context.CancelFunc
}

// Open starts to fetch. Nothing is waited for: where there is no agent, Next says so.
func Open(generator string, options Options) (*Source, error) {
	if options.Socket == "" {
		options.Socket = os.Getenv("COSID_SOCKET")
	}
	if options.Socket == "" {
		return nil, errors.New("COSID_SOCKET is not set: annotate the pod with `cosid/slot: auto`, or start an agent")
	}
	if options.Batch == 0 {
		options.Batch = 512
	}
	if options.MaxAge == 0 {
		options.MaxAge = time.Second
	}
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", options.Socket)
	}
	ctx, stop := context.WithCancel(context.Background())
	s := &Source{
		// The agent ends a connection that is idle for 5 s; ours goes first, so that no request meets that end.
		client:  http.Client{Transport: &http.Transport{DialContext: dial, IdleConnTimeout: 2 * time.Second}},
		url:     fmt.Sprintf("http://cosid/v1/ids?generator=%s&count=%d", url.QueryEscape(generator), options.Batch),
		maxAge:  options.MaxAge,
		batches: make(chan batch), // no room: one batch waits in the fetcher's hand
		current: make(chan batch, 1),
		stop:    stop,
	}
	s.current <- batch{}
	go s.fetchAhead(ctx)
	return s, nil
}

// Close ends the fetching. Next must not be called any more.
func (s *Source) Close() { s.stop() }

// Next is the next ID, or the reason why there was none until ctx was done.
func (s *Source) Next(ctx context.Context) (uint64, error) {
	var last error
	for {
		var current batch
		select {
		case current = <-s.current:
		case <-ctx.Done():
			return 0, because(last, ctx.Err())
		}
		if len(current.ids) > 0 && time.Since(current.fetched) <= s.maxAge {
			id := current.ids[0]
			current.ids = current.ids[1:]
			s.current <- current
			return id, nil
		}
		select {
		case current = <-s.batches:
		case <-ctx.Done():
			s.current <- batch{}
			return 0, because(last, ctx.Err())
		}
		if current.err != nil {
			last = current.err
		}
		s.current <- current
		if current.err != nil && !passes(current.err) {
			return 0, current.err
		}
	}
}

func because(last, done error) error {
	if last != nil {
		return last
	}
	return done
}

// passes says whether to wait for it: what the agent refuses with 503 it does not refuse for ever.
func passes(err error) bool {
	var refused *Error
	return !errors.As(err, &refused) || refused.Status == http.StatusServiceUnavailable
}

func (s *Source) fetchAhead(ctx context.Context) {
	for ctx.Err() == nil {
		ids, err := s.fetch(ctx)
		got := batch{ids, time.Now(), err}
		if err != nil {
			select {
			case <-time.After(pause):
			case <-ctx.Done():
			}
		}
		select {
		case s.batches <- got:
		case <-ctx.Done():
		}
	}
}

func (s *Source) fetch(ctx context.Context) ([]uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url, nil)
	if err != nil {
		return nil, err
	}
	response, err := s.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, longestAnswer+1))
	if err != nil {
		return nil, err
	}
	if len(body) > longestAnswer {
		return nil, errors.New("the answer is longer than an agent's")
	}
	var answer struct {
		IDs   []uint64
		Error Error
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return nil, fmt.Errorf("the answer of %s is not an agent's: %w", s.url, err)
	}
	if response.StatusCode != http.StatusOK {
		answer.Error.Status = response.StatusCode
		return nil, &answer.Error
	}
	if len(answer.IDs) == 0 {
		return nil, errors.New("the answer has no IDs")
	}
	return answer.IDs, nil
}
