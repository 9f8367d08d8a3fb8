import assert from "node:assert/strict";
import { createServer, type Server, type ServerResponse } from "node:http";
import { Socket } from "node:net";
import { after, before, describe, it, mock } from "node:test";
import { CloudFormation } from "#aws/client-cloudformation";
import { SSM } from "#aws/client-ssm";
import { close, listen } from "../../test/listen.ts";
import { Complaint } from "../cli/complaint.ts";
import { openBucket, openS3 } from "./bucket.ts";
import { openAwsClient } from "./client.ts";
import { rethrowAwsErrorsAsComplaints } from "./stage.ts";

const expectComplaint = (sentence: RegExp | string, exitCode: number) => (error: unknown) => {
  assert.ok(error instanceof Complaint, String(error));
  assert.match(error.message, typeof sentence === "string" ? new RegExp(`^${RegExp.escape(sentence)}$`) : sentence);
  assert.equal(error.exitCode, exitCode);
  return true;
};

const page = { "content-type": "text/html" };
const fromAws = { "x-amzn-requestid": "1" };
const endless = "a".repeat(1024 * 1024);

describe("an answer that a client of AWS can't use", () => {
  let server: Server;
  let url: string;
  let answer: (response: ServerResponse) => void;
  const variables = { ...process.env };
  before(async () => {
    server = createServer((_, response) => answer(response));
    url = `http://127.0.0.1:${await listen(server)}`;
    const keys = { AWS_ACCESS_KEY_ID: "a", AWS_SECRET_ACCESS_KEY: "b", AWS_REGION: "eu-west-1" };
    Object.assign(process.env, keys, { AWS_ENDPOINT_URL: url });
  });
  after(async () => {
    process.env = variables;
    server.closeAllConnections();
    await close(server);
  });
  const describeStacks = () => openAwsClient(CloudFormation, { maxAttempts: 1 }).describeStacks({});
  const getParameter = () => openAwsClient(SSM, { maxAttempts: 1 }).getParameter({ Name: "a" });
  const notFromAws = /^AWS: the answer to DescribeStacks of CloudFormation, with the status \d+, is not from AWS$/;
  const rows: [name: string, answer: typeof answer, call: () => Promise<unknown>, sentence: RegExp][] = [
    ["a page", (response) => response.writeHead(200, page).end("<html>"), describeStacks, notFromAws],
    ["nothing", (response) => response.writeHead(200).end(), describeStacks, notFromAws],
    ["a page of a proxy", (response) => response.writeHead(403, page).end("<html>"), describeStacks, notFromAws],
    [
      "half a text in XML",
      (response) => response.writeHead(200, fromAws).end("<DescribeStacksResponse><a"),
      describeStacks,
      /^AWS: CloudFormation answers DescribeStacks with the status 200 and a text that can't be read$/,
    ],
    [
      "a text that is no JSON",
      (response) => response.writeHead(200, fromAws).end("boom"),
      getParameter,
      /^AWS: SSM answers GetParameter with the status 200 and a text that can't be read$/,
    ],
    [
      "an endless text",
      (response) => {
        response.writeHead(200, fromAws);
        const write = () => {
          while (!response.destroyed && response.write(endless));
        };
        response.on("drain", write);
        write();
      },
      describeStacks,
      /^AWS: CloudFormation answers DescribeStacks with more than \d+ bytes$/,
    ],
  ];
  for (const [name, act, call, sentence] of rows)
    it(`is refused: ${name}`, async () => {
      answer = act;
      await assert.rejects(rethrowAwsErrorsAsComplaints(call), expectComplaint(sentence, 3));
    });

  for (const [name, begin] of Object.entries<(response: ServerResponse) => void>({
    "no answer": () => {},
    "half an answer": (response) => response.writeHead(200, fromAws).write("<"),
  }))
    it(`is awaited for 30 seconds: ${name}`, async () => {
      const asked = Promise.withResolvers<void>();
      answer = (response) => {
        begin(response);
        asked.resolve();
      };
      // The SDK sets the limit for the headers at the socket, whose timer can't be mocked.
      mock.method(Socket.prototype, "setTimeout", (milliseconds: number, end?: () => void) => {
        if (milliseconds === 30_000 && end) setImmediate(end);
      });
      mock.timers.enable({ apis: ["setTimeout"] });
      try {
        const answered = assert.rejects(
          rethrowAwsErrorsAsComplaints(describeStacks),
          expectComplaint("AWS: CloudFormation doesn't answer DescribeStacks within 30 s", 3),
        );
        await asked.promise;
        // The beginning of an answer arrives some time after it was sent.
        for (let turn = 0; turn < 100; turn++) await new Promise((resolve) => setImmediate(resolve));
        mock.timers.tick(30_000);
        await answered;
      } finally {
        mock.reset();
      }
    });

  it("is asked for again if it is late", async () => {
    let answers = 0;
    answer = (response) => {
      answers++;
      const text = "<DescribeStacksResponse><DescribeStacksResult/></DescribeStacksResponse>";
      if (answers > 1) response.writeHead(200, fromAws).end(text);
    };
    mock.method(Socket.prototype, "setTimeout", (milliseconds: number, end?: () => void) => {
      if (milliseconds === 30_000 && end && answers === 1) setImmediate(end);
    });
    mock.timers.enable({ apis: ["setTimeout"] });
    try {
      let isDone = false;
      const described = openAwsClient(CloudFormation, { maxAttempts: 2 })
        .describeStacks({})
        .finally(() => {
          isDone = true;
        });
      while (!isDone) {
        await new Promise((resolve) => setImmediate(resolve));
        mock.timers.tick(100);
      }
      await described;
      assert.equal(answers, 2);
    } finally {
      mock.reset();
    }
  });

  it("is not the text of an object in S3", async () => {
    answer = (response) => response.writeHead(200, { ...page, "x-amz-request-id": "1", etag: '"1"' }).end("<html>é");
    assert.equal((await openBucket("bucket", openS3()).read("key"))?.text, "<html>é");
  });

  for (const wrong of ["garbage", "127.0.0.1:7103", "localhost:4566", "http://"])
    it(`is not awaited from the address ${wrong}`, () => {
      process.env.AWS_ENDPOINT_URL = wrong;
      try {
        assert.throws(
          describeStacks,
          expectComplaint(`AWS_ENDPOINT_URL is "${wrong}", which is no URL such as http://127.0.0.1:4566`, 2),
        );
      } finally {
        process.env.AWS_ENDPOINT_URL = url;
      }
    });
});
