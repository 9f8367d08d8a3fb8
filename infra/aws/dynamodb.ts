import { setTimeout as wait } from "node:timers/promises";
import { callAwsJsonApi } from "#lib/cluster/credentials.ts";
import { requireUnansweredError, sendRequest } from "#lib/cluster/https-request.ts";
import type { AwsKeys } from "#lib/cluster/signature.ts";
import { parseJson, toMap } from "#lib/json.ts";
import { isFromAws } from "./client.ts";
import type { StageLockGuard } from "./guard.ts";

/** Calls an operation of DynamoDB, and returns its answer. Throws an error that has the name of DynamoDB's error. */
export type DynamoDbCall = (operation: string, input: object) => Promise<Record<string, unknown>>;

const maxAttempts = 5;
const answerMilliseconds = 20_000;

/** Creates a client for DynamoDB without its SDK, because only a few operations of one table are called. */
export const createDynamoDbClient =
  (readIdentity: () => Promise<AwsKeys>, readRegion: () => Promise<string>, guard: StageLockGuard): DynamoDbCall =>
  async (operation, body) => {
    const [keys, region] = await Promise.all([readIdentity(), readRegion()]);
    const call = {
      service: "dynamodb",
      region,
      target: `DynamoDB_20120810.${operation}`,
      protocol: "1.0",
      body,
    } as const;
    for (let attempt = 1; ; attempt++) {
      if (!operation.startsWith("Describe")) await guard.check();
      const sources = { identity: () => keys, ask: sendRequest };
      const answer = await callAwsJsonApi(call, Date.now() + answerMilliseconds, sources).catch((error) => ({
        status: 0,
        headers: {},
        body: JSON.stringify({ __type: "TimeoutError", message: requireUnansweredError(error).message }),
      }));
      const { status, headers = {}, body: text } = answer;
      const content = toMap(parseJson(text));
      if (status === 200 && !isFromAws(status, headers))
        throw createError(status, { message: "the answer of DynamoDB is not from AWS" });
      if (status === 200) return content;
      const error = createError(status, content);
      const isTemporary = status === 0 || status >= 500 || /Throttl/.test(error.name);
      if (!isTemporary || attempt === maxAttempts) throw error;
      await wait(Math.random() * 100 * 2 ** attempt);
    }
  };

/**
 * Returns an error like those that the clients of the AWS SDK throw. Its name comes from `__type`, for instance
 * `com.amazonaws.dynamodb.v20120810#ResourceNotFoundException`.
 */
const createError = (status: number, { __type: type, message, Message = message }: Record<string, unknown>): Error => {
  const error = new Error(String(Message ?? `DynamoDB answers ${status}`));
  error.name = String(type ?? "ServiceException").replace(/^.*#/, "");
  return Object.assign(error, { $metadata: { httpStatusCode: status } });
};
