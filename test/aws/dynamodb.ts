import { findFreePort, startProgram, waitForAnswer } from "../../infra/parity/control-plane/process.ts";
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

/** Points this process's environment variables at a server for DynamoDB. */
export const useDynamoDb = (url: string): void => {
  const identity = { AWS_ACCESS_KEY_ID: "account", AWS_SECRET_ACCESS_KEY: "secret", AWS_REGION: region };
  Object.assign(process.env, identity, { AWS_ENDPOINT_URL_DYNAMODB: url });
};

/** Creates a table as a stage has it. */
export const createLedgerTable = async (url: string, TableName: string): Promise<void> => {
  const headers = {
    "content-type": "application/x-amz-json-1.0",
    "x-amz-target": "DynamoDB_20120810.CreateTable",
    authorization: `AWS4-HMAC-SHA256 Credential=account/20260101/${region}/dynamodb/aws4_request, SignedHeaders=host, Signature=0`,
  };
  const body = {
    TableName,
    BillingMode: "PAY_PER_REQUEST",
    AttributeDefinitions: [{ AttributeName: "key", AttributeType: "S" }],
    KeySchema: [{ AttributeName: "key", KeyType: "HASH" }],
  };
  const answer = await fetch(url, { method: "POST", headers, body: JSON.stringify(body) });
  if (!answer.ok) throw new Error(`the table ${TableName} could not be created: ${await answer.text()}`);
};
