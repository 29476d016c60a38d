// IDs of one generator from the CosId agent's socket, fetched ahead of need: most calls of `next` find one in memory.
//
// IDs are strings: JavaScript's numbers lose those above 2^53, which most layouts have.
//
// An ID that was fetched is used up at the agent, and unique for ever, also after the slot was lost: to keep some is safe. Only
// their timestamps get older, so that they sort before what others make meanwhile: those older than `maxAge` are left out.

import http from 'node:http';
import { setTimeout as pause } from 'node:timers/promises';

// One request to the agent may take so long; it itself waits up to 2 s for its window.
const REQUEST_MS = 3000;
// Between two tries after a failure that passes.
const PAUSE_MS = 20;
// An answer of the most IDs has less; what is longer comes from no agent.
const LONGEST_ANSWER = 8 << 20;

/** Why there is no ID. `passing`: the same call can succeed later without anybody changing anything. */
export class NoId extends Error {
  constructor(message, passing) {
    super(message);
    this.passing = passing;
  }
}

export class CosId {
  #path;
  #socket;
  #maxAge;
  #ids = [];
  #fetched = 0;
  // The request under way, and once it has ended what came of it: IDs or an error.
  #ahead;
  #came;

  /** Starts to fetch. Nothing is waited for: where there is no agent, `next` says so. */
  constructor(generator, { socket = process.env.COSID_SOCKET, batch = 512, maxAge = 1000 } = {}) {
    if (!socket) {
      throw new Error('COSID_SOCKET is not set: annotate the pod with `cosid/slot: auto`, or start an agent');
    }
    this.#socket = socket;
    this.#path = `/v1/ids?generator=${encodeURIComponent(generator)}&count=${batch}`;
    this.#maxAge = maxAge;
    this.#fetch();
  }

  /** The next ID, waited for at most so many ms. */
  async next(timeout = 2000) {
    const deadline = performance.now() + timeout;
    let failed = new NoId(`the agent at ${this.#socket} did not answer in time`, true);
    for (;;) {
      // Nothing is awaited between the look and the taking: no other caller can get the same one.
      if (this.#ids.length > 0 && performance.now() - this.#fetched <= this.#maxAge) {
        return this.#ids.pop();
      }
      if (!this.#came) {
        const left = deadline - performance.now();
        if (left <= 0) throw failed;
        const waiting = new AbortController();
        await Promise.race([this.#ahead, pause(left, undefined, { signal: waiting.signal }).catch(() => {})]);
        waiting.abort();
        // Another caller may have taken over what came.
        if (!this.#came) continue;
      }
      const { ids, fetched, error } = this.#came;
      this.#fetch();
      if (ids) {
        this.#ids = ids;
        this.#fetched = fetched;
      } else {
        failed = error;
        if (failed.passing === false) throw failed;
      }
    }
  }

  // Fetches ahead. Its promise never rejects: nobody may be waiting.
  #fetch() {
    this.#came = undefined;
    this.#ahead = this.#request().then(
      // The last is taken first.
      (ids) => { this.#came = { ids: ids.reverse(), fetched: performance.now() }; },
      async (error) => {
        await pause(PAUSE_MS, undefined, { ref: false });
        this.#came = { error };
      },
    );
  }

  #request() {
    return new Promise((resolve, reject) => {
      const options = { socketPath: this.#socket, path: this.#path, method: 'POST', agent: false };
      const request = http.request({ ...options, signal: AbortSignal.timeout(REQUEST_MS) }, (response) => {
        const parts = [];
        let length = 0;
        response.on('data', (part) => {
          parts.push(part);
          length += part.length;
          if (length > LONGEST_ANSWER) request.destroy(new NoId('the answer is longer than an agent\'s', false));
        });
        response.on('error', reject);
        response.on('end', () => {
          try {
            resolve(read(response.statusCode, Buffer.concat(parts)));
          } catch (error) {
            reject(error);
          }
        });
      });
      request.on('error', reject);
      request.end();
    });
  }
}

function read(status, body) {
  let answer;
  try {
    answer = JSON.parse(body.toString());
  } catch {
    throw new NoId('what answers is no agent', false);
  }
  if (status !== 200) {
    // What the agent refuses with 503 it does not refuse for ever.
    throw new NoId(`the agent says ${answer?.error?.reason}: ${answer?.error?.message}`, status === 503);
  }
  const ids = answer?.strings;
  if (!Array.isArray(ids) || ids.length === 0 || !ids.every(isId)) throw new NoId('the answer has no IDs', false);
  return ids;
}

function isId(text) {
  return typeof text === 'string' && /^\d{1,19}$/.test(text) && BigInt(text) < 2n ** 63n;
}
