import type { Context } from "aws-lambda";
import { createStartMeter } from "./cold-start.ts";
import type { evaluateInTime } from "./deadline.ts";
import type { EnforcementMode, EvaluateRequest, RuleDecision } from "./decide.ts";
import type { exactJson } from "./exact-json.ts";
import { Failure, toFailure, toFailureStatus } from "./failure.ts";
import { freezeDeep } from "./json.ts";
import {
  type ApiServerHttpRequest,
  type DirectInvocation,
  isDirectInvocation,
  readLambdaEvent,
} from "./lambda-event.ts";
import { type AnsweredReviewFacts, formatLogLine } from "./log-line.ts";
import { formatError } from "./masked-error.ts";
import type { Capabilities, OpenCapabilities } from "./needs.ts";
import { printSync } from "./print.ts";
import type { createCapabilitiesFromRecord } from "./recorded-answers.ts";
import {
  type AdmissionReview,
  buildReviewResponse,
  decodeReview,
  encodeReviewResponse,
  type ReviewOutcome,
  requireValidReview,
} from "./review.ts";
import { explainFailure } from "./review-explanation.ts";
import type { Phase, Rule } from "./rule.ts";
import type { findVariantSettings, SettingsVariants } from "./settings.ts";
import { mergeWithDefaults } from "./settings.ts";
import { createUrlKeyVerifier } from "./url-key.ts";

/** How a rule treats one cluster's reviews, and the versions of the cluster's URL key that it accepts. */
export interface ClusterSetup<Settings extends object = object> {
  keyVersions: readonly number[];
  mode: EnforcementMode;
  settings: Settings;
  /** The cluster's minor version of Kubernetes; only for rules with `since`. Absent: the newest. */
  kubernetes?: string;
  variants?: SettingsVariants;
}

/** The part of postern.yaml for one function, which is bundled with the rule's code. */
export interface EndpointConfig<Settings extends object = object> {
  rule: string;
  /** The rule's variants, for setups without `variants`. */
  variants?: SettingsVariants;
  /**
   * The setup of every cluster that `clusters` doesn't name: a cluster's signed key proves its name. Without it, as in
   * bundles of older Postern versions, such clusters are refused.
   */
  usual?: ClusterSetup<Settings>;
  /** The clusters whose setup isn't the usual one. A text is the name of another cluster that has the same setup. */
  clusters: Record<string, ClusterSetup<Settings> | string>;
}

/** Returns a cluster's setup; undefined if the function doesn't know the cluster. */
export const findClusterSetup = <Settings extends object>(
  { usual, clusters }: EndpointConfig<Settings>,
  name: string,
): ClusterSetup<Settings> | undefined => {
  const own = Object.hasOwn(clusters, name) ? clusters[name] : usual;
  return typeof own === "string" ? (clusters[own] as ClusterSetup<Settings>) : own;
};

/** What a rules' endpoint gets from Lambda or the local server that runs it: keys, capabilities and a log. */
export interface EndpointHostInputs {
  /** The Ed25519 public keys that verify callers: one, or two separated by a comma, in base64url. */
  publicKeys: string;
  /** Opens the capabilities that answer a rule's questions; required by rules with needs. */
  openCapabilities?: OpenCapabilities | undefined;
  writeLogLine(report: AnsweredReviewFacts): void;
}

/** The code that not every rule needs. A bundle has only what its rule needs; all of it is in complete-endpoint.ts. */
export interface OptionalEndpointFunctions {
  /** Returns the settings of a variant. The bundle of a rule with variants must contain this function. */
  findVariantSettings?: typeof findVariantSettings;
  /** Evaluates a rule within its time limit. Required for rules with needs, as is `createCapabilitiesFromRecord`. */
  evaluateInTime?: typeof evaluateInTime;
  createCapabilitiesFromRecord?: typeof createCapabilitiesFromRecord;
  /** Reads and writes JSON for rules with `exactIntegers`. */
  exactJson?: typeof exactJson;
}

/** The state of one review: each step adds what the next ones and the log line need. */
interface Turn extends AnsweredReviewFacts {
  readonly started: number;
  call?: ApiServerHttpRequest;
  review?: AdmissionReview;
  settings?: unknown;
  kubernetes?: string | undefined;
  capabilities?: Capabilities | undefined;
  now?: Date;
  outcome?: ReviewOutcome;
}

const longestBody = 6 * 1024 * 1024;

/**
 * Makes a Lambda handler of a rule. Each review takes these steps once:
 * event → key → body → decode → mode → rule → patch → encode → response.
 */
export const createEndpoint = (
  rule: Rule,
  config: EndpointConfig,
  evaluate: EvaluateRequest,
  host: EndpointHostInputs = createLambdaHost(),
  { findVariantSettings, evaluateInTime, createCapabilitiesFromRecord, exactJson }: OptionalEndpointFunctions = {},
) => {
  const { parse, stringify } = (rule.exactIntegers && exactJson) || JSON;
  const defaults = rule.settings ?? {};
  freezeDeep([defaults, config]);
  const verifyKey = createUrlKeyVerifier(host.publicKeys, (name) => findClusterSetup(config, name)?.keyVersions ?? []);

  /** Reads an event: a direct invocation brings a review, any other event is a call. */
  const readEvent = (turn: Turn, event: unknown): void => {
    if (isDirectInvocation(event)) takeDirect(rule, turn, event, createCapabilitiesFromRecord);
    else turn.call = readLambdaEvent(event);
  };

  /**
   * Checks the key, rule, phase and variant in a call's path. A wrong key and an unknown rule, phase or variant get
   * the same answer, a 404.
   */
  const checkCall = (turn: Turn) => {
    if (turn.call) {
      const [segment = "", name, phase, variant] = readPath(turn.call.path);
      const caller = verifyKey(segment);
      if (!caller || name !== config.rule || !isPhase(phase)) throw createNotFound();
      Object.assign(turn, caller, { variant, phase });
    }
    const cluster = turn.cluster ? findClusterSetup(config, turn.cluster) : undefined;
    const { mode = "enforce", settings = defaults } = cluster ?? {};
    turn.mode = mode;
    turn.kubernetes ??= cluster?.kubernetes;
    const usual = turn.settings === undefined ? settings : mergeWithDefaults(defaults, turn.settings);
    const own = findVariantSettings?.(config, cluster, turn.variant, usual);
    turn.settings = own ?? usual;
    turn.now ??= new Date();
    if (!isPhase(turn.phase) || (!rule[turn.phase] && mode !== "off")) throw createNotFound();
    // A direct invocation may bring settings under which the rule has other variants.
    if (turn.call && turn.variant !== undefined && !own && mode !== "off") throw createNotFound();
  };

  const evaluateReview = (turn: Turn, context: Context): unknown => {
    const { phase, mode, review, settings, kubernetes, variant, now } = turn as Required<Turn> & { settings: object };
    const { request } = review;
    turn.request = request;
    const decide = (capabilities?: Capabilities) =>
      evaluate(rule, phase, request, { name: config.rule, mode, settings, kubernetes, variant, now, capabilities });
    const decision = evaluateInTime ? evaluateInTime(rule, turn, host, context, decide) : decide();
    const conclude = (result: RuleDecision) => Object.assign(turn, result);
    return decision instanceof Promise ? decision.then(conclude) : conclude(decision);
  };

  const writeLog = (turn: Turn) => {
    if (!turn.outcome && !turn.error) return;
    turn.milliseconds = Math.round((readClock() - turn.started) * 1000) / 1000;
    host.writeLogLine(turn);
  };

  return async (event: unknown, context: Context): Promise<unknown> => {
    const turn = createTurn(config.rule, context);
    try {
      readEvent(turn, event);
      // A load balancer's health check has no key.
      if (turn.call?.userAgent.startsWith("ELB-HealthChecker/")) return turn.call.answer(200, "");
      checkCall(turn);
      decodeBody(turn, parse);
      await evaluateReview(turn, context);
      return encodeAnswer(turn, stringify);
    } catch (error) {
      return answerFailure(turn, await explainFailure(error, turn.review?.request, rule.match));
    } finally {
      writeLog(turn);
    }
  };
};

/** Returns the key, the rule, the phase and perhaps the variant: the end of a path, which a proxy may have prefixed. */
const readPath = (path: string) => {
  const segments = path.split("/");
  return segments.slice(isPhase(segments.at(-1)) ? -3 : -4);
};

const createTurn = (rule: string, { functionName = rule, functionVersion = "$LATEST" }: Context): Turn => ({
  started: readClock(),
  rule,
  function: functionName,
  version: functionVersion,
  code: 200,
  refused: false,
  operations: 0,
  milliseconds: 0,
});

const takeDirect = (
  rule: Rule,
  turn: Turn,
  event: DirectInvocation,
  readAnswers: typeof createCapabilitiesFromRecord | undefined,
): void => {
  const { phase, variant, cluster, settings, kubernetes, needs, now } = event;
  if (!isPhase(phase)) throw new Failure(400, "phase must be mutate or validate");
  turn.review = requireValidReview(event.review);
  turn.phase = phase;
  turn.variant = variant as string | undefined;
  turn.settings = settings;
  if (kubernetes !== undefined) turn.kubernetes = String(kubernetes);
  // An event with settings must bring the answers, too: the function's rights fit only the function's settings.
  turn.capabilities = readAnswers?.(rule, settings === undefined ? needs : (needs ?? {}));
  if (now !== undefined) turn.now = new Date(String(now));
  if (Number.isNaN(turn.now?.getTime()))
    throw new Failure(400, "now must be a time, for instance 2026-01-01T00:00:00Z");
  // `cluster` is set last: a review with a cluster counts in the metrics, and a malformed invocation must not count.
  if (cluster && typeof cluster === "string") Object.assign(turn, { cluster, key: "direct" });
};

const decodeBody = (turn: Turn, parse: (body: string) => unknown) => {
  const { call } = turn;
  if (!call) return;
  if (call.method !== "POST") throw new Failure(405, `${call.method} is not answered here; a review is sent by POST`);
  if (!/^application\/json\s*(;|$)/i.test(call.contentType))
    throw new Failure(415, `the content type is "${call.contentType}"; a review is application/json`);
  const body = call.body();
  if (Buffer.byteLength(body) > longestBody)
    throw new Failure(413, `the body has more than ${longestBody} bytes, the most that Lambda takes`);
  turn.review = decodeReview(body, parse);
};

const encodeAnswer = (turn: Turn, format: (patch: unknown) => string): unknown => {
  const { call, review, outcome } = turn as Required<Turn>;
  return call
    ? call.answer(200, encodeReviewResponse(review, outcome, format))
    : buildReviewResponse(review, outcome, format);
};

const answerFailure = (turn: Turn, error: unknown): unknown => {
  const failure = toFailure(error);
  Object.assign(turn, { code: failure.code, error: failure });
  // The user that sent a Secret may not be allowed to read the old one, and API servers log failures.
  const isSecret = turn.request?.resource.resource === "secrets";
  const status = toFailureStatus(failure.code, isSecret ? formatError(failure, turn) : failure.message);
  return turn.call ? turn.call.answer(failure.code, JSON.stringify(status)) : status;
};

const isPhase = (segment: unknown): segment is Phase => segment === "mutate" || segment === "validate";
const createNotFound = () => new Failure(404, "there is nothing here");

/** Returns a clock's milliseconds, to measure durations. Unlike hrtime, `performance` would slow a cold start. */
const readClock = () => {
  const [seconds, nanoseconds] = process.hrtime();
  return seconds * 1000 + nanoseconds / 1e6;
};

export const createLambdaHost = (capabilities?: OpenCapabilities): EndpointHostInputs => {
  const { POSTERN_STAGE: stage = "local", POSTERN_KEYS: publicKeys = "", AWS_LAMBDA_INITIALIZATION_TYPE } = process.env;
  const readStart = createStartMeter(AWS_LAMBDA_INITIALIZATION_TYPE);
  return {
    publicKeys,
    openCapabilities: capabilities,
    writeLogLine: (report) =>
      printSync(`${formatLogLine(report, stage, Date.now(), readStart(report.milliseconds))}\n`),
  };
};
