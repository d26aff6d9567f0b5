/**
 * Client of an edn network.
 *
 * `Edn.api` has every call of the interface, typed from its OpenAPI document (openapi-fetch). The methods of `Edn` add what a
 * document cannot say: errors as exceptions, idempotency keys, retries, and streams that resume.
 */
import createClient, { type Client, type Middleware } from "openapi-fetch";
import { createParser } from "eventsource-parser";
import { randomUUID } from "node:crypto";
import type { components, paths } from "./schema.js";

export type { components, operations, paths } from "./schema.js";

type Schemas = components["schemas"];
export type Problem = Schemas["Problem"];
export type Topic = Schemas["Topic"];
export type Subscription = Schemas["Subscription"];
export type NewSubscription = Schemas["SubscriptionBody"];
export type AttributeType = "number" | "integer" | "string" | "boolean" | "time" | "bytes";
export type Event = Record<string, unknown>;

/** One event of a stream, with all its matches. */
export interface Notification {
  topic: string;
  event: { id: string; time: string; attributes: Record<string, unknown> };
  matches: { subscription: string; recipient?: string | null }[];
  traceparent?: string;
  tracestate?: string;
  /** Its place in the stream: `stream(id, { after: position })` continues after it. */
  position: string;
}

/** The network refused a call: an RFC 9457 problem. */
export class EdnError extends Error {
  readonly status: number;
  /** Place in the request's body, a JSON pointer such as "/filter/price/gt". */
  readonly pointer: string | undefined;

  constructor(readonly problem: Problem) {
    super(`${problem.status} ${problem.title}: ${problem.detail}`);
    this.name = "EdnError";
    this.status = problem.status;
    const place: unknown = problem.errors?.[0]?.["pointer"];
    this.pointer = typeof place === "string" ? place : undefined;
  }
}

export interface Options {
  /** URL of a dispatcher, such as http://127.0.0.1:8080. */
  url: string;
  /** API key; a network that was started open needs none. */
  key?: string;
  /** Retries of a call that was answered 429 or 503, or not at all. */
  retries?: number;
  fetch?: typeof globalThis.fetch;
}

export interface StreamOptions {
  /** Position of the last notification that was read. */
  after?: string;
  signal?: AbortSignal;
  /** Called with the reason if unread notifications were dropped. */
  onGap?: (reason: string) => void;
}

const LONGEST_WAIT = 20_000;

export class Edn {
  readonly api: Client<paths>;
  readonly #url: string;
  readonly #headers: Record<string, string>;
  readonly #retries: number;
  readonly #fetch: typeof globalThis.fetch;

  constructor(options: Options) {
    if (!/^https?:\/\//.test(options.url)) {
      throw new TypeError(`url must begin with http:// or https://, got ${options.url}`);
    }
    this.#url = options.url.replace(/\/+$/, "");
    this.#retries = options.retries ?? 4;
    this.#fetch = options.fetch ?? globalThis.fetch;
    this.#headers = options.key === undefined ? {} : { authorization: `Bearer ${options.key}` };
    this.api = createClient<paths>({
      baseUrl: this.#url,
      headers: this.#headers,
      fetch: (request) => this.#send(request),
    });
    this.api.use(raising);
  }

  /** Creates or changes a topic. */
  async putTopic(name: string, attributes: Record<string, AttributeType>): Promise<Topic> {
    const { data } = await this.api.PUT("/v1/topics/{name}", { params: { path: { name } }, body: { attributes } });
    return data as Topic;
  }

  /** Subscribes; without a `sink` the subscription is a stream. Repeating it after a lost answer makes no second one. */
  async subscribe(subscription: Omit<NewSubscription, "id"> & { id?: string }): Promise<Subscription> {
    const body = { id: randomUUID(), ...subscription } as NewSubscription;
    const { data } = await this.api.POST("/v1/subscriptions", { body });
    return data as Subscription;
  }

  async unsubscribe(id: string): Promise<void> {
    await this.api.DELETE("/v1/subscriptions/{id}", { params: { path: { id } } });
  }

  /** Publishes one event or several, all or nothing; returns their ids when they are durable. */
  async publish(topic: string, events: Event | Event[], idempotencyKey: string = randomUUID()): Promise<string[]> {
    const { data } = await this.api.POST("/v1/topics/{name}/events", {
      params: { path: { name: topic }, header: { "Idempotency-Key": idempotencyKey } },
      body: events as never,
    });
    return (data as { ids: string[] }).ids;
  }

  /** Reads the stream of a subscription until it ends; reconnects and continues after the last notification. */
  async *stream(id: string, options: StreamOptions = {}): AsyncGenerator<Notification, void, undefined> {
    const url = `${this.#url}/v1/subscriptions/${encodeURIComponent(id)}/events`;
    let position = options.after;
    let failures = 0;
    let connected = false;
    while (!options.signal?.aborted) {
      let failure: unknown;
      try {
        const last: Record<string, string> = position === undefined ? {} : { "last-event-id": position };
        const response = await this.#fetch(url, {
          headers: { ...this.#headers, ...last, accept: "text/event-stream" },
          ...(options.signal === undefined ? {} : { signal: options.signal }),
        });
        if (!response.ok) throw await problemOf(response);
        connected = true;
        for await (const [kind, place, data] of serverSent(response)) {
          failures = 0;
          if (kind === "end") return;
          if (kind === "gap") options.onGap?.((JSON.parse(data) as { reason: string }).reason);
          else if (kind === undefined && data) {
            position = place;
            yield { ...(JSON.parse(data) as Omit<Notification, "position">), position: place ?? "" };
          }
        }
      } catch (error) {
        if (options.signal?.aborted) return;
        if (error instanceof EdnError && !isRetried(error.status)) throw error;
        if (error instanceof SyntaxError) throw error;
        failure = error;
      }
      failures += 1;
      if (failure !== undefined && !connected && failures > this.#retries) throw failure;
      await wait(backOff(failures));
    }
  }

  async #send(request: Request): Promise<Response> {
    for (let attempt = 1; ; attempt += 1) {
      let response: Response | undefined;
      try {
        response = await this.#fetch(request.clone());
        if (!isRetried(response.status) || attempt > this.#retries) return response;
      } catch (error) {
        if (attempt > this.#retries || request.signal.aborted || !isRepeatable(request)) throw error;
      }
      const told = Number(response?.headers.get("retry-after") ?? Number.NaN) * 1000;
      await wait(told <= LONGEST_WAIT ? told : backOff(attempt));
    }
  }
}

/** Turns refusals into exceptions, so that `data` is always there. */
const raising: Middleware = {
  async onResponse({ response }) {
    if (!response.ok) throw await problemOf(response);
  },
};

async function problemOf(response: Response): Promise<EdnError> {
  const text = await response.text();
  try {
    return new EdnError(JSON.parse(text) as Problem);
  } catch {
    // The answer of a proxy may be anything.
    const detail = text.slice(0, 200) || "no explanation";
    return new EdnError({ type: "about:blank", title: response.statusText, status: response.status, detail } as Problem);
  }
}

/** Yields kind, id and data of server-sent events. */
async function* serverSent(response: Response): AsyncGenerator<[string | undefined, string | undefined, string]> {
  if (response.body === null) return;
  const arrived: [string | undefined, string | undefined, string][] = [];
  const parser = createParser({ onEvent: ({ event, id, data }) => void arrived.push([event, id, data]) });
  const decoder = new TextDecoder();
  const reader = response.body.getReader();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      parser.feed(decoder.decode(value, { stream: true }));
      yield* arrived.splice(0);
    }
  } finally {
    await reader.cancel().catch(() => undefined);
  }
}

/** Creating a key twice would leave one that nobody knows; every other call is idempotent, or has a key or an id. */
function isRepeatable(request: Request): boolean {
  return !(request.method === "POST" && new URL(request.url).pathname === "/v1/keys");
}

function isRetried(status: number): boolean {
  return status === 429 || status === 503;
}

function backOff(attempt: number): number {
  return Math.min(LONGEST_WAIT, 100 * 2 ** (attempt - 1)) * (0.5 + Math.random() / 2);
}

function wait(milliseconds: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, milliseconds));
}
