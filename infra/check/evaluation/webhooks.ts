import { isIP } from "node:net";
import type { DefaultedWebhookEntry } from "#infra/apiserver/admission/hooks.ts";
import { getHookUrl, parseWebhookHttpAnswer } from "#infra/apiserver/admission/http.ts";
import type { HookCallResult, ReviewToSend } from "#infra/apiserver/admission/types.ts";
import { exactJson } from "#lib/exact-json.ts";
import { toMap } from "#lib/json.ts";
import { toSentence } from "../../cli/complaint.ts";

/** The most bytes of a response from a webhook that `check` calls. */
const maxResponseBytes = 10 * 1024 * 1024;

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
  const options = { ...toMap(review.request.options), dryRun: ["All"] };
  const hasOptions = review.request.options !== null && review.request.options !== undefined;
  const dryRunRequest = { ...review.request, dryRun: true, ...(hasOptions && { options }) };
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

/** Sends a review to a webhook by HTTPS and returns the response. */
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
        if (bytes > maxResponseBytes) response.destroy(new Error(`it answers more than ${maxResponseBytes} bytes`));
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
