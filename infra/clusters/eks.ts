import { requireUnansweredError, sendRequest } from "#lib/cluster/https-request.ts";
import { type AwsKeys, signHeaders } from "#lib/cluster/signature.ts";
import { parseJson, toMap } from "#lib/json.ts";
import { findServiceUrl, isFromAws } from "../aws/client.ts";
import type { StageLockGuard } from "../aws/guard.ts";
import { createRoleIdentity } from "../aws/identity.ts";
import { Complaint, toSentence } from "../cli/complaint.ts";
import type { ClusterConnectConfig } from "../config/config.ts";

/** An answer of EKS's API. */
export interface EksAnswer {
  status: number;
  /** The JSON of the answer. */
  content: Record<string, unknown>;
  /** The message of an error. */
  sentence: string;
}

interface EksRequest {
  method?: "GET" | "POST" | "DELETE";
  /** The parts of the path after the cluster's name. */
  path?: string[];
  query?: Record<string, string>;
  body?: object;
}

/** Returns the identity for an EKS cluster: the role in `connect`, or else the identity of the command. */
export const chooseEksIdentity = (
  { role, region = "" }: ClusterConnectConfig,
  readIdentity: () => Promise<AwsKeys>,
): (() => Promise<AwsKeys>) => (role === undefined ? readIdentity : createRoleIdentity(role, region, readIdentity));

/** Returns a function that calls EKS's API for the cluster in `connect`. */
export const openEks = (
  connect: ClusterConnectConfig,
  readIdentity: () => Promise<AwsKeys>,
  guard?: StageLockGuard,
): ((request?: EksRequest) => Promise<EksAnswer>) => {
  const { eks = "", region = "" } = connect;
  const readKeys = chooseEksIdentity(connect, readIdentity);
  return async ({ method = "GET", path = [], query = {}, body } = {}) => {
    if (method !== "GET") await guard?.check();
    const base = findServiceUrl("EKS", region);
    const parts = ["clusters", eks, ...path].map(encodeURIComponent);
    const root = base.pathname.replace(/\/$/, "");
    const text = body === undefined ? undefined : JSON.stringify(body);
    const request = { method, host: base.host, query, service: "eks", region };
    const headers = signHeaders(
      {
        ...request,
        // In signatures of all services except S3, the path is encoded twice.
        path: `${root}/${parts.map(encodeURIComponent).join("/")}`,
        ...(text !== undefined && { headers: { "content-type": "application/json" }, body: text }),
      },
      await readKeys(),
      new Date(),
    );
    const search = new URLSearchParams(query).toString().replaceAll("+", "%20");
    const answer = await sendRequest(
      `${base.origin}${root}/${parts.join("/")}${search && `?${search}`}`,
      { method, headers },
      text,
      Date.now() + 10_000,
    ).catch(requireUnansweredError); // The result is the error if no answer came; other errors are thrown.
    if (!("status" in answer)) throw new Complaint(`EKS can't be reached at ${base.origin}: ${toSentence(answer)}`, 3);
    if (!isFromAws(answer.status, answer.headers ?? {}))
      throw new Complaint(`the answer of EKS at ${base.origin}, with the status ${answer.status}, is not from AWS`, 3);
    const content = toMap(parseJson(answer.body));
    const { message } = content;
    const sentence = toSentence(typeof message === "string" ? message : answer.body.slice(0, 200));
    return { status: answer.status, content, sentence };
  };
};
