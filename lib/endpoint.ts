import middy from "@middy/core";
import type { Context } from "aws-lambda";
import { type Decision, decide, type Mode } from "./decide.ts";
import { type Call, type Direct, isDirect, read } from "./event.ts";
import { Failure, failureStatus, toFailure } from "./failure.ts";
import { line, type Report } from "./journal.ts";
import { type Caller, doorkeeper } from "./key.ts";
import { type Recorded, recorded, unconnected, type World } from "./needs.ts";
import { check, decode, encode, type Review, respond } from "./review.ts";
import type { Phase, Rule } from "./rule.ts";
import { merge } from "./settings.ts";

/** A rule's share of postern.yaml, baked into its bundle. */
export interface Share {
  rule: string;
  clusters: Record<string, { keyVersions: readonly number[]; mode: Mode; settings: object }>;
}

/** What surrounds an endpoint: by default, Lambda. */
export interface Host {
  /** One or two Ed25519 public keys, base64url, comma between. */
  publicKeys: string;
  world(cluster: string): World;
  journal(report: Report): void;
}

/** One review on its way. It starts as an event, and each middleware adds what it found out. */
interface Turn {
  /** Nanoseconds, of the clock that is there at once; `performance` takes Node a millisecond to load. */
  started: bigint;
  call?: Call;
  caller?: Caller;
  phase?: Phase;
  variant?: string | undefined;
  mode?: Mode;
  settings?: object;
  world?: World;
  now?: Date;
  review?: Review;
  decision?: Decision;
  failure?: Failure;
}

type Step = middy.Request<Turn, unknown, Error, Context>;

/** Time kept back for the way of the answer: a tenth of a second for us, the rest for the network. */
const margin = 300;
const longestBody = 6 * 1024 * 1024;

/**
 * A rule as a Lambda handler. The way of one review, straight and once:
 * event → key → body → decode → mode → rule → patch → encode → response.
 */
export const endpoint = (rule: Rule, share: Share, host: Host = lambda()) => {
  const admit = doorkeeper(host.publicKeys, (cluster) => own(share.clusters, cluster)?.keyVersions ?? []);

  const chain = middy<Turn, unknown, Error, Context>({
    timeoutEarlyInMillis: 0,
    requestEnd: (step) => journal(step as Step, share, host),
  })
    .use({ before: (step) => arrive(step, rule), onError: fail })
    .use({ before: (step) => enter(step, rule, share, admit, host) })
    .use({ before: unpack })
    .use({ after: reply })
    .handler((turn, context) => ask(rule, turn, context));
  // Node 24 refuses handlers with a third parameter; middy's has two.
  return chain as unknown as (event: unknown, context: Context) => Promise<unknown>;
};

/** Event → turn. Load balancers ask for their health without a key. */
const arrive = (step: Step, rule: Rule): unknown => {
  const event: unknown = step.event;
  step.event = { started: process.hrtime.bigint() };
  if (isDirect(event)) {
    takeDirect(rule, step.event, event);
    return undefined;
  }
  step.event.call = read(event);
  return step.event.call.userAgent.startsWith("ELB-HealthChecker/") ? step.event.call.answer(200, "") : undefined;
};

/** Path → who calls, and which phase. A wrong key and an unknown rule look alike. */
const enter = ({ event: turn }: Step, rule: Rule, share: Share, admit: (segment: string) => Caller | undefined, host: Host) => {
  if (turn.call !== undefined) {
    const segments = turn.call.path.split("/");
    const last = segments.length - (isPhase(segments.at(-1)) ? 1 : 2);
    const [segment = "", name, phase, variant] = segments.slice(Math.max(0, last - 2));
    const caller = admit(segment);
    if (caller === undefined || name !== share.rule || !isPhase(phase) || variant !== undefined) throw nowhere();
    turn.caller = caller;
    turn.phase = phase;
  }
  const cluster = turn.caller?.cluster ?? "";
  const here = own(share.clusters, cluster);
  turn.mode ??= here?.mode ?? "enforce";
  turn.settings = merge(here?.settings ?? rule.settings ?? {}, turn.settings);
  if (rule.needs) turn.world ??= host.world(cluster);
  turn.now ??= new Date();
  if (turn.phase === undefined || (rule[turn.phase] === undefined && turn.mode !== "off")) throw nowhere();
};

/** Body → review. */
const unpack = ({ event: turn }: Step) => {
  const { call } = turn;
  if (call === undefined) return;
  if (call.method !== "POST") throw new Failure(405, `${call.method} is not answered here; a review is sent by POST`);
  if (!/^application\/json\s*(;|$)/i.test(call.contentType))
    throw new Failure(415, `the content type is "${call.contentType}"; a review is application/json`);
  const body = call.body();
  if (body.length > longestBody) throw new Failure(413, `the body has more than ${longestBody} bytes, the most that Lambda takes`);
  turn.review = decode(body);
};

/** Review → decision, in time. */
const ask = (rule: Rule, turn: Turn, context: Context): Promise<void> | undefined => {
  const { phase, review, mode = "enforce", settings = {}, variant, now = new Date(), world } = turn;
  if (phase === undefined || review === undefined) throw nowhere();
  const answer = decide(rule, phase, review.request, { mode, settings, variant, now, world });
  if (!(answer instanceof Promise)) {
    turn.decision = answer;
    return undefined;
  }
  const left = Math.min(turn.call?.timeout ?? Number.POSITIVE_INFINITY, context.getRemainingTimeInMillis?.() ?? 30_000);
  return inTime(answer, left - margin).then((decision) => {
    turn.decision = decision;
  });
};

const inTime = async <T>(answer: Promise<T>, milliseconds: number): Promise<T> => {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    const failure = () => reject(new Failure(504, "the rule did not answer in time"));
    timer = setTimeout(failure, Math.max(0, milliseconds));
  });
  try {
    return await Promise.race([answer, late]);
  } finally {
    clearTimeout(timer);
  }
};

/** Decision → response. */
const reply = (step: Step) => {
  const { call, review, decision } = step.event;
  if (review === undefined || decision === undefined) throw nowhere();
  step.response = call ? call.answer(200, encode(review, decision.outcome)) : respond(review, decision.outcome);
};

/** Whatever was thrown → a Status that the API server shows. The one place where failures are caught. */
const fail = (step: Step) => {
  const failure = toFailure(step.error);
  step.event.failure = failure;
  const status = failureStatus(failure.code, failure.message);
  const { call } = step.event;
  step.response = call ? call.answer(failure.code, JSON.stringify(status), failure.code === 405 ? { allow: "POST" } : {}) : status;
};

const journal = ({ event: turn, context }: Step, { rule }: Share, host: Host) => {
  if (turn.decision === undefined && turn.failure === undefined) return;
  host.journal({
    rule,
    phase: turn.phase,
    variant: turn.variant,
    cluster: turn.caller?.cluster,
    key: turn.caller?.key,
    mode: turn.mode,
    request: turn.review?.request,
    code: turn.failure?.code ?? 200,
    refused: turn.decision?.refused ?? false,
    operations: turn.decision?.operations ?? 0,
    milliseconds: Number((process.hrtime.bigint() - turn.started) / 1000n) / 1000,
    error: turn.failure,
    function: context.functionName ?? rule,
    version: context.functionVersion ?? "$LATEST",
  });
};

/** A direct invocation brings its own settings, needs and time; how cases run in AWS. */
const takeDirect = (rule: Rule, turn: Turn, { phase, variant, cluster, review, settings, needs, now }: Direct) => {
  if (!isPhase(phase)) throw new Failure(400, "phase must be mutate or validate");
  turn.phase = phase;
  turn.review = check(review);
  if (typeof variant === "string") turn.variant = variant;
  if (typeof cluster === "string") turn.caller = { cluster, key: "direct" };
  if (typeof settings === "object" && settings !== null) turn.settings = settings;
  if (rule.needs && typeof needs === "object" && needs !== null) turn.world = recorded(needs as Recorded);
  if (typeof now === "string") turn.now = new Date(now);
  if (Number.isNaN(turn.now?.getTime())) throw new Failure(400, "now must be a time, for instance 2026-01-01T00:00:00Z");
};

const isPhase = (segment: unknown): segment is Phase => segment === "mutate" || segment === "validate";
const nowhere = () => new Failure(404, "there is nothing here");
const own = <T>(map: Record<string, T>, key: string): T | undefined => (Object.hasOwn(map, key) ? map[key] : undefined);

/** Lambda: keys in the environment, one line a review to CloudWatch. */
const lambda = (): Host => {
  const stage = process.env.POSTERN_STAGE ?? "local";
  return {
    publicKeys: process.env.POSTERN_KEYS ?? "",
    world: unconnected,
    journal: (report) => process.stdout.write(`${line(report, stage, Date.now())}\n`),
  };
};
