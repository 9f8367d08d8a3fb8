import { findFreePort, startProgram, waitForAnswer } from "../control-plane/process.ts";
import { findDynamoDb } from "./tools.ts";

const region = "eu-west-1";

/** Starts DynamoDB Local on a free port, with its data in memory. */
export const startDynamoDb = async (): Promise<{ url: string; stop(): Promise<void> }> => {
  const port = await findFreePort();
  const url = `http://127.0.0.1:${port}`;
  const tool = findDynamoDb();
  if ("missing" in tool) throw new Error(tool.missing);
  const [command = "", ...words] = tool.command;
  const server = startProgram(command, [...words, "-inMemory", "-disableTelemetry", "-port", `${port}`]);
  await waitForAnswer(url, server);
  return { url, stop: server.stop };
};

/** Returns the environment variables that point a process at a server for DynamoDB. */
export const buildDynamoDbVariables = (url: string): Record<string, string> => ({
  AWS_ACCESS_KEY_ID: "account",
  AWS_SECRET_ACCESS_KEY: "secret",
  AWS_REGION: region,
  AWS_ENDPOINT_URL_DYNAMODB: url,
});

/** Points this process's environment variables at a server for DynamoDB. */
export const useDynamoDb = (url: string): void => {
  Object.assign(process.env, buildDynamoDbVariables(url));
};

/** Creates a table like the ledger of a stage. */
export const createLedgerTable = async (url: string, TableName: string): Promise<void> => {
  await callDynamoDb(url, "CreateTable", {
    TableName,
    BillingMode: "PAY_PER_REQUEST",
    AttributeDefinitions: [{ AttributeName: "key", AttributeType: "S" }],
    KeySchema: [{ AttributeName: "key", KeyType: "HASH" }],
  });
};

/** Returns the values of a table by their keys. The values are not read at the same moment. */
export const scanLedgerTable = async (url: string, TableName: string): Promise<Map<string, unknown>> => {
  const values = new Map<string, unknown>();
  for (let start: object | undefined; ; ) {
    const query = { TableName, ConsistentRead: true, ...(start && { ExclusiveStartKey: start }) };
    const { Items, LastEvaluatedKey } = await callDynamoDb(url, "Scan", query);
    for (const { key, value } of Items) if (value) values.set(key.S, JSON.parse(value.S));
    start = LastEvaluatedKey;
    if (start === undefined) return values;
  }
};

const callDynamoDb = async (url: string, operation: string, body: object) => {
  const headers = {
    "content-type": "application/x-amz-json-1.0",
    "x-amz-target": `DynamoDB_20120810.${operation}`,
    authorization: `AWS4-HMAC-SHA256 Credential=account/20260101/${region}/dynamodb/aws4_request, SignedHeaders=host, Signature=0`,
  };
  const answer = await fetch(url, { method: "POST", headers, body: JSON.stringify(body) });
  if (!answer.ok) throw new Error(`DynamoDB Local refuses ${operation}: ${await answer.text()}`);
  return Object(await answer.json());
};
