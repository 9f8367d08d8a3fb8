import { exactJson } from "../exact-json.ts";
import { Failure, toFailureStatus } from "../failure.ts";
import "../features.ts";
import { freezeDeep } from "../json.ts";
import { formatError } from "../masking/masked-error.ts";
import type { Capabilities, OpenCapabilities } from "../needs.ts";
import {
  type AdmissionRequest,
  type AdmissionReview,
  buildReviewResponse,
  decodeReview,
  encodeReviewResponse,
  type ReviewOutcome,
  requireValidReview,
} from "../review.ts";
import type { Phase, Rule } from "../rule.ts";
import { findVariantSettings, mergeWithDefaults, type SettingsVariants } from "../settings.ts";
import { evaluateInTime } from "./deadline.ts";
import { type EnforcementMode, evaluateRule, type RuleDecision } from "./evaluation.ts";
import type { RuleException } from "./exceptions.ts";
import type { AnsweredReviewFacts, LogDetail } from "./log-line.ts";
import { explainFailure } from "./review-explanation.ts";
import { createUrlKeyVerifier } from "./url-key.ts";

// Answers the requests of API servers and direct invocations, in Lambda and elsewhere.

/** How a rule treats one cluster's reviews, and the versions of the cluster's URL key that it accepts. */
export interface ClusterSetup<Settings extends object = object> {
  keyVersions: readonly number[];
  mode: EnforcementMode;
  settings: Settings;
  /** The cluster's Kubernetes minor (1.35), only for rules whose data differ by it (field `since`). Absent: newest. */
  kubernetes?: string;
  /** Settings by the name of a variant. A rule with variants has several webhook entries, one for each variant. */
  variants?: SettingsVariants;
  /** The exemptions that have an end date, except those of a group's members. */
  exceptions?: readonly RuleException[];
}

/** The part of postern.yaml for one function, which is bundled with the rule's code. */
export interface EndpointConfig<Settings extends object = object> {
  rule: string;
  logs?: LogDetail;
  /** Settings by the name of a variant (one of the rule's webhook entries), for cluster setups without `variants`. */
  variants?: SettingsVariants;
  /**
   * The setup of each cluster that `clusters` doesn't name. Clusters need not be listed, because the signed key in a
   * cluster's URL proves the cluster's name. Without `usual`, as in bundles of older Postern versions, clusters that
   * aren't listed are refused.
   */
  usual?: ClusterSetup<Settings>;
  /** The clusters whose setup isn't the usual one. A text is the name of another cluster that has the same setup. */
  clusters: Record<string, ClusterSetup<Settings> | string>;
}

/**
 * Returns a cluster's setup; undefined if the function doesn't know the cluster. In `clusters`, a text stands for the
 * setup of another cluster, whose name it is.
 */
export const findClusterSetup = <Settings extends object>(
  { usual, clusters }: EndpointConfig<Settings>,
  name: string,
): ClusterSetup<Settings> | undefined => {
  const setup = Object.hasOwn(clusters, name) ? clusters[name] : usual;
  return typeof setup === "string" ? (clusters[setup] as ClusterSetup<Settings>) : setup;
};

/** What an endpoint gets from the process that it runs in. */
export interface EndpointHost {
  /** The Ed25519 public keys that verify callers: one, or two separated by a comma, in base64url. */
  publicKeys: string;
  /** The names of the function and its version in log lines. Default: the rule's name, and `local`. */
  functionName?: string | undefined;
  functionVersion?: string | undefined;
  /** Opens the capabilities that answer a rule's questions; required by rules with needs. */
  openCapabilities?: OpenCapabilities | undefined;
  /** Gets the facts of each answered review. */
  writeLogLine(report: AnsweredReviewFacts): void;
}

/** A review to evaluate, without HTTP. `variant` names one of the rule's webhook entries, whose settings apply. */
export interface ReviewToEvaluate {
  phase: Phase;
  variant?: string | undefined;
  /** The member of a group that evaluates the review alone. */
  member?: string | undefined;
  /** The cluster whose settings apply; without it, the rule's defaults do. */
  cluster?: string | undefined;
  /** An AdmissionReview with a request. */
  review: unknown;
  /** Settings that replace those of the cluster. */
  settings?: unknown;
  /** The minor version of Kubernetes, instead of the cluster's. */
  kubernetes?: string | undefined;
  /** What answers the rule's questions, instead of the cluster. */
  capabilities?: Capabilities | undefined;
  now?: Date | undefined;
  /** The time by which the evaluation must end, in milliseconds since 1970. */
  deadline: number;
}

/** The AdmissionReview with the response, or the Status of a failure. */
export type EvaluatedReview =
  | { response: object; status?: undefined }
  | { response?: undefined; status: FailureStatus };
type FailureStatus = ReturnType<typeof toFailureStatus>;

/** The HTTP request of an API server. */
export interface ReviewHttpRequest {
  method: string;
  path: string;
  contentType: string;
  /**
   * Returns the body; throws a Failure if it is no text. It is called only after the secret key in the URL's path has
   * been verified.
   */
  readBody(): string;
  /** The time by which the answer must be ready, in milliseconds since 1970. */
  deadline: number;
}

/** The answer to an HTTP request: a status code, and a body as JSON. */
export interface ReviewHttpAnswer {
  code: number;
  body: string;
}

/** Answers the reviews of one rule, or of a group of rules. No function throws: failures are answers, too. */
export interface Endpoint {
  evaluateReview(input: ReviewToEvaluate): Promise<EvaluatedReview>;
  answerRequest(request: ReviewHttpRequest): Promise<ReviewHttpAnswer>;
  /** Answers what could not be read as a request. */
  answerFailure(error: unknown): Promise<FailureStatus>;
}

/** The facts for a review's log line that are known before the evaluation. */
type KnownLogFacts = Pick<AnsweredReviewFacts, "phase" | "variant" | "cluster" | "key" | "mode" | "request">;

/** How a review is evaluated: the phase, mode and settings, and the Kubernetes version by which the rule decides. */
interface Treatment {
  phase: Phase;
  variant: string | undefined;
  mode: EnforcementMode;
  settings: object;
  kubernetes: string | undefined;
  exceptions?: readonly RuleException[] | undefined;
  /** True if `settings` are a variant's. False if `variant` is undefined or unknown here; then they are the rule's. */
  isVariant: boolean;
}

type EvaluationLimits = Pick<ReviewToEvaluate, "cluster" | "capabilities" | "now" | "deadline">;

interface ReviewCircumstances extends EvaluationLimits {
  known: KnownLogFacts;
  /** The phase, the mode and the settings with which the rule evaluates the review. */
  treatment: Treatment;
  /** The time when the request came, by `readClock`. */
  started: number;
}

const longestBody = 6 * 1024 * 1024;

/** Creates the endpoint of a rule. `evaluate` may do more than the library's function, for instance record reviews. */
export const createEndpoint = (
  rule: Rule,
  config: EndpointConfig,
  host: EndpointHost,
  evaluate = evaluateRule,
): Endpoint => {
  const { parse, stringify } = POSTERN_EXACT_INTEGERS && rule.exactIntegers ? exactJson : JSON;
  const defaults = rule.settings ?? {};
  freezeDeep([defaults, config]);
  const verifyKey = createUrlKeyVerifier(host.publicKeys, (name) => findClusterSetup(config, name)?.keyVersions ?? []);

  const findTreatment = (
    { phase, variant, cluster }: Pick<ReviewToEvaluate, "phase" | "variant" | "cluster">,
    overrides: Pick<ReviewToEvaluate, "settings" | "kubernetes"> = {},
  ): Treatment => {
    const setup = cluster ? findClusterSetup(config, cluster) : undefined;
    const settings =
      overrides.settings === undefined
        ? (setup?.settings ?? defaults)
        : mergeWithDefaults(defaults, overrides.settings);
    const variantSettings = POSTERN_VARIANTS ? findVariantSettings(config, setup, variant, settings) : undefined;
    return {
      phase,
      variant,
      mode: setup?.mode ?? "enforce",
      settings: variantSettings ?? settings,
      kubernetes: overrides.kubernetes ?? setup?.kubernetes,
      ...(POSTERN_EXCEPTIONS && { exceptions: setup?.exceptions }),
      isVariant: variantSettings !== undefined,
    };
  };

  /** Evaluates the rule; fails if that isn't finished at the deadline. */
  const evaluateRequest = (
    request: AdmissionRequest,
    { phase, isVariant: _, ...treatment }: Treatment,
    { cluster = "", capabilities: givenCapabilities, now = new Date(), deadline }: EvaluationLimits,
  ): RuleDecision | Promise<RuleDecision> => {
    const context = { name: config.rule, ...treatment, now };
    const openCapabilities = (milliseconds: number) =>
      givenCapabilities ?? host.openCapabilities?.(cluster, milliseconds);
    return POSTERN_NEEDS
      ? evaluateInTime(deadline - Date.now(), (milliseconds) =>
          evaluate(rule, phase, request, { ...context, capabilities: rule.needs && openCapabilities(milliseconds) }),
        )
      : evaluate(rule, phase, request, context);
  };

  const writeLog = (started: number, facts: Partial<AnsweredReviewFacts>) =>
    host.writeLogLine({
      rule: config.rule,
      function: host.functionName ?? config.rule,
      version: host.functionVersion ?? "local",
      code: 200,
      refused: false,
      operations: 0,
      logs: config.logs,
      ...facts,
      milliseconds: Math.round((readClock() - started) * 1000) / 1000,
    });

  /** Logs a failure, and returns the Status that answers it. */
  const answerFailure = async (error: unknown, known: KnownLogFacts, started: number): Promise<FailureStatus> => {
    const failure = await explainFailure(error, known.request, rule.match);
    const facts = { ...known, code: failure.code, error: failure };
    writeLog(started, facts);
    // The user who sent a Secret may not be allowed to read the old one, and API servers log failures.
    const isSecret = known.request?.resource.resource === "secrets";
    return toFailureStatus(
      failure.code,
      isSecret ? formatError(failure, { rule: config.rule, ...facts }) : failure.message,
    );
  };

  /** Gets a review from `receive`, evaluates and logs it, and encodes its outcome. Returns a Status if that fails. */
  const answerReview = async <T>(
    { known, treatment, started, ...input }: ReviewCircumstances,
    receive: () => AdmissionReview,
    encode: (review: AdmissionReview, outcome: ReviewOutcome, format: (value: unknown) => string) => T,
  ): Promise<{ answer: T } | { status: FailureStatus }> => {
    let request: AdmissionRequest | undefined;
    try {
      requireServed(treatment);
      const review = receive();
      request = review.request;
      const { outcome, ...decision } = await evaluateRequest(request, treatment, input);
      const answer = encode(review, outcome, stringify);
      writeLog(started, { ...known, request, ...decision });
      return { answer };
    } catch (error) {
      return { status: await answerFailure(error, { ...known, request }, started) };
    }
  };

  const answerRequest = async (http: ReviewHttpRequest): Promise<ReviewHttpAnswer> => {
    const started = readClock();
    const encodeFailure = (status: FailureStatus) => ({ code: status.code, body: JSON.stringify(status) });
    const target = findTarget(http.path);
    if (target === undefined) return encodeFailure(await answerFailure(createNotFound(), {}, started));
    const treatment = findTreatment(target);
    const known = { ...target, mode: treatment.mode };
    const circumstances = { ...target, known, treatment, started, deadline: http.deadline };
    const result = await answerReview(circumstances, () => decodeBody(http, parse), encodeReviewResponse);
    return "status" in result ? encodeFailure(result.status) : { code: 200, body: result.answer };
  };

  /** Returns the cluster, phase and variant of a path; undefined for a wrong key, another rule or an unknown phase. */
  const findTarget = (path: string) => {
    const [segment = "", name, phase, variant] = readPath(path);
    const caller = verifyKey(segment);
    return caller && name === config.rule && isPhase(phase) ? { ...caller, phase, variant } : undefined;
  };

  /** Throws if the rule has no function for the phase, or no such variant. */
  const requireServed = ({ phase, variant, mode, isVariant }: Treatment) => {
    if (mode !== "off" && (!rule[phase] || (variant !== undefined && !isVariant))) throw createNotFound();
  };

  const evaluateReview = async (input: ReviewToEvaluate): Promise<EvaluatedReview> => {
    const { phase, variant, cluster } = input;
    // An unknown variant is accepted: the event's settings may be those of any variant.
    const treatment = { ...findTreatment(input, input), isVariant: true };
    // A review with a cluster counts in the metrics.
    const known = { phase, variant, mode: treatment.mode, ...(cluster && { cluster, key: "direct" }) };
    const circumstances = { ...input, known, treatment, started: readClock() };
    const result = await answerReview(circumstances, () => requireValidReview(input.review), buildReviewResponse);
    return "status" in result ? result : { response: result.answer };
  };

  return { evaluateReview, answerRequest, answerFailure: (error) => answerFailure(error, {}, readClock()) };
};

/** Returns the end of a path, without a proxy's prefix: the cluster with its secret key, rule, phase, any variant. */
const readPath = (path: string) => {
  const segments = path.split("/");
  return segments.slice(isPhase(segments.at(-1)) ? -3 : -4);
};

/** Returns the review in a request's body. A Failure says why the request isn't answered. */
const decodeBody = (
  { method, contentType, readBody }: ReviewHttpRequest,
  parse: (body: string) => unknown,
): AdmissionReview => {
  if (method !== "POST") throw new Failure(405, `${method} is not answered here; a review is sent by POST`);
  if (!/^application\/json\s*(;|$)/i.test(contentType))
    throw new Failure(415, `the content type is "${contentType}"; a review is application/json`);
  const body = readBody();
  if (Buffer.byteLength(body) > longestBody)
    throw new Failure(413, `the body has more than ${longestBody} bytes, the most that Lambda takes`);
  return decodeReview(body, parse);
};

/** Returns the headers of an answer. */
export const buildAnswerHeaders = (code: number): Record<string, string> => ({
  "content-type": "application/json",
  ...(code === 405 && { allow: "POST" }),
});

export const isPhase = (text: unknown): text is Phase => text === "mutate" || text === "validate";
const createNotFound = () => new Failure(404, "there is nothing here");

/** Returns a clock's milliseconds, to measure durations. Unlike hrtime, `performance` would slow a cold start. */
const readClock = () => Number(process.hrtime.bigint()) / 1e6;
