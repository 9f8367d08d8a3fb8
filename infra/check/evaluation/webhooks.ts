import { isIP } from "node:net";
import {
  type DefaultedWebhookEntry,
  parseWebhookConfigurations,
  type WebhookEntriesByPhase,
} from "#infra/apiserver/admission/hooks.ts";
import { getHookUrl, parseWebhookHttpAnswer } from "#infra/apiserver/admission/http.ts";
import type { CelEvaluator, HookCallResult, ReviewToSend } from "#infra/apiserver/admission/types.ts";
import { exactJson } from "#lib/exact-json.ts";
import { Complaint, toSentence } from "../../cli/complaint.ts";
import type { ClusterConfig } from "../../config/config.ts";
import type { Manifest } from "../../manifests/manifests.ts";
import type { ObjectEvaluationEnvironment } from "./object-evaluation.ts";
import type { CallablePlugins } from "./plugins.ts";
import type { CallableRules } from "./rule-webhooks.ts";

/**
 * Returns a cluster's webhooks: its rules' and the foreign ones in manifests, called only at `callableHosts`.
 * `hasPolicies`: matchConditions of admission policies are evaluated, too. `plugins` are called in their places.
 */
export const createWebhookEnvironment = async (
  rules: CallableRules,
  foreignConfigurations: readonly Manifest[],
  [cluster, { kubernetes }]: readonly [name: string, config: ClusterConfig],
  callableHosts: readonly string[],
  hasPolicies: boolean,
  plugins: CallablePlugins,
): Promise<
  Pick<ObjectEvaluationEnvironment, "kubernetes" | "chain" | "call" | "cel" | "getHookName" | "findSuggestion"> & {
    hooks: WebhookEntriesByPhase;
  }
> => {
  const configurations = [...rules.configurations, ...foreignConfigurations.map(({ object }) => object)];
  const hooks = extendTimeouts(parseWebhookConfigurations(configurations, kubernetes), rules);
  const chain = plugins.insert(hooks);
  checkHooks({ ...hooks, ...chain }, rules, cluster);
  return {
    kubernetes,
    hooks,
    chain,
    call: (hook, review, subject) =>
      plugins.call(hook, review, subject) ??
      rules.call(hook, review) ??
      callForeignWebhook(hook, review, callableHosts),
    cel: await createConditionEvaluator(hooks, rules, hasPolicies),
    getHookName: (hook, message) => rules.findRuleName(hook, message) ?? hook,
    findSuggestion: rules.findSuggestion,
  };
};

/** Returns the evaluator of matchConditions. CEL is loaded only if something may have such conditions. */
const createConditionEvaluator = async (
  { mutating, validating }: WebhookEntriesByPhase,
  rules: CallableRules,
  hasPolicies: boolean,
): Promise<CelEvaluator> => {
  if (!hasPolicies && ![...mutating, ...validating].some(({ matchConditions }) => matchConditions.length > 0))
    return {
      // Only plugins have conditions then, over the authorizer.
      compile: () => () => ({ unsupported: "only the cluster's authorizer knows whether the user has the right" }),
      createBudget: () => ({ left: 0 }),
    };
  const { celEvaluator } = await import("#infra/apiserver/admission/conditions.ts");
  return {
    createBudget: celEvaluator.createBudget,
    compile: (expression, kubernetes) => {
      const evaluate = celEvaluator.compile(expression, kubernetes);
      if (!rules.isSavingCondition(expression)) return evaluate;
      return (variables, budget) => {
        const evaluated = evaluate(variables, budget);
        return "unsupported" in evaluated ? { holds: true } : evaluated;
      };
    },
  };
};

/** Gives rules 30 seconds: their speed on this machine says nothing about their speed where they are deployed. */
const extendTimeouts = (
  { mutating, validating, ...remarks }: WebhookEntriesByPhase,
  rules: CallableRules,
): WebhookEntriesByPhase => {
  const extendTimeout = (hook: DefaultedWebhookEntry) =>
    rules.findRuleName(hook.name) === undefined ? hook : { ...hook, timeoutSeconds: 30 };
  return { mutating: mutating.map(extendTimeout), validating: validating.map(extendTimeout), ...remarks };
};

const checkHooks = (
  { faults, mutating, validating }: WebhookEntriesByPhase,
  { hasRules }: CallableRules,
  cluster: string,
) => {
  if (!hasRules && mutating.length + validating.length + faults.length === 0)
    throw new Complaint(
      `no rule is on for cluster "${cluster}"; postern.yaml says which are, and --rules names others`,
    );
  if (faults.length > 0) throw new Complaint(faults.map((fault) => `--webhooks: ${fault}`).join("\n"));
};

/** The most bytes of a response from a webhook that `check` calls. */
const longest = 10 * 1024 * 1024;

const isLoopback = (host: string) =>
  host === "localhost" || host === "::1" || (isIP(host) === 4 && host.startsWith("127."));

/**
 * Calls a webhook that isn't a rule's, if its host is among `hosts`; `loopback` stands for this machine. The request is
 * a dry run; a webhook that doesn't declare itself free of side effects in a dry run isn't called.
 */
export const callForeignWebhook = async (
  hook: DefaultedWebhookEntry,
  review: ReviewToSend,
  hosts: readonly string[],
): Promise<HookCallResult> => {
  const { url = "", caBundle } = hook.clientConfig;
  const address = URL.canParse(url) ? new URL(url) : undefined;
  const host = address?.hostname.replace(/^\[|\]$/g, "") ?? "";
  const isAllowed = hosts.includes(host) || (hosts.includes("loopback") && isLoopback(host));
  const isHarmless = hook.sideEffects === "None" || hook.sideEffects === "NoneOnDryRun";
  if (address?.protocol !== "https:") return { unsupported: "it isn't called, because it has no https URL" };
  if (!isHarmless)
    return { unsupported: "it isn't called, because its entry doesn't state that a dry run has no side effects" };
  if (!isAllowed) return { unsupported: `it would call ${host}; --call ${host} allows that` };
  const options = { ...Object(review.request.options), dryRun: ["All"] };
  const isDry = review.request.options !== null && review.request.options !== undefined;
  const dryRunRequest = { ...review.request, dryRun: true, ...(isDry && { options }) };
  const where = `${getHookUrl(hook.clientConfig)}?timeout=${hook.timeoutSeconds}s`;
  try {
    const body = exactJson.stringify({ ...review, request: dryRunRequest });
    const answer = await sendReview(new URL(where), body, hook.timeoutSeconds, caBundle);
    // The API server would follow the redirect, but its target isn't among the allowed hosts.
    if (answer.location !== undefined && redirects.includes(answer.code))
      return { unsupported: `it redirects to ${answer.location}, which is not called` };
    return parseWebhookHttpAnswer(answer);
  } catch (error) {
    return { failure: `Post ${JSON.stringify(where)}: ${toSentence(error)}` };
  }
};

const redirects = [301, 302, 303, 307, 308];

interface WebhookResponse {
  code: number;
  type: string;
  text: string;
  location?: string | undefined;
}

const sendReview = (url: URL, text: string, seconds: number, caBundle: string | undefined): Promise<WebhookResponse> =>
  new Promise((resolve, reject) => {
    // Most checks send nothing, and loading this module takes as long as starting Node.
    const { request } = process.getBuiltinModule("node:https");
    const headers = {
      "content-type": "application/json",
      accept: "application/json, */*",
      "user-agent": "kube-apiserver-admission",
      "content-length": Buffer.byteLength(text),
    };
    const signal = AbortSignal.timeout(seconds * 1000);
    const ca = caBundle ? { ca: Buffer.from(caBundle, "base64") } : {};
    const sent = request(url, { method: "POST", headers, signal, ...ca }, (response) => {
      const chunks: Buffer[] = [];
      let bytes = 0;
      response.on("data", (chunk: Buffer) => {
        bytes += chunk.length;
        if (bytes > longest) response.destroy(new Error(`it answers more than ${longest} bytes`));
        else chunks.push(chunk);
      });
      response.on("end", () => {
        const { statusCode: code = 0, headers } = response;
        const { "content-type": type = "", location } = headers;
        resolve({ code, type, location, text: Buffer.concat(chunks).toString() });
      });
      response.on("error", reject);
    });
    sent.on("error", (error) => reject(signal.aborted ? new Error("context deadline exceeded") : error));
    sent.end(text);
  });
