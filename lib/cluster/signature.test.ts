import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { presignUrl, signHeaders } from "./signature.ts";

// The key is that of AWS's own examples, and the expected signatures were computed by AWS's signer.
const identity = {
  accessKeyId: "AKIDEXAMPLE",
  secretAccessKey: "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY",
  sessionToken: "to/ken+==",
};
const now = new Date("2026-01-02T03:04:05Z");

describe("a request signature", () => {
  it("a request signature is in the presigned URL that authenticates to a cluster", () => {
    const url = new URL(
      presignUrl(
        {
          method: "GET",
          host: "sts.eu-west-1.amazonaws.com",
          path: "/",
          service: "sts",
          region: "eu-west-1",
          query: { Action: "GetCallerIdentity", Version: "2011-06-15" },
          headers: { "x-k8s-aws-id": "prod eu" },
        },
        identity,
        now,
        60,
      ),
    );
    assert.equal(url.origin + url.pathname, "https://sts.eu-west-1.amazonaws.com/");
    assert.deepEqual(Object.fromEntries(url.searchParams), {
      Action: "GetCallerIdentity",
      Version: "2011-06-15",
      "X-Amz-Security-Token": "to/ken+==",
      "X-Amz-Algorithm": "AWS4-HMAC-SHA256",
      "X-Amz-Credential": "AKIDEXAMPLE/20260102/eu-west-1/sts/aws4_request",
      "X-Amz-Date": "20260102T030405Z",
      "X-Amz-Expires": "60",
      "X-Amz-SignedHeaders": "host;x-k8s-aws-id",
      "X-Amz-Signature": "e0bb811801f38fbaffb32b9dacd4c7c5111a7bc321ab20579287ebad2e71b2e0",
    });
  });

  it("a request signature is in the headers of a request with a body", () => {
    const headers = signHeaders(
      {
        method: "POST",
        host: "secretsmanager.eu-west-1.amazonaws.com",
        path: "/",
        service: "secretsmanager",
        region: "eu-west-1",
        headers: { "content-type": "application/x-amz-json-1.1", "x-amz-target": "secretsmanager.GetSecretValue" },
        body: '{"SecretId":"a"}',
      },
      identity,
      now,
    );
    assert.deepEqual(headers, {
      "content-type": "application/x-amz-json-1.1",
      "x-amz-target": "secretsmanager.GetSecretValue",
      "x-amz-date": "20260102T030405Z",
      "x-amz-security-token": "to/ken+==",
      authorization:
        "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20260102/eu-west-1/secretsmanager/aws4_request, SignedHeaders=content-type;host;x-amz-date;x-amz-security-token;x-amz-target, Signature=f4b6a532849c581f1426791beb56eaec52453c103a9d49950d1498e1ae4d6cc3",
    });
  });

  it("a request signature of AWS's first example equals AWS's signature", () => {
    const { authorization } = signHeaders(
      {
        method: "GET",
        host: "iam.amazonaws.com",
        path: "/",
        query: { Action: "ListUsers", Version: "2010-05-08" },
        headers: { "content-type": "application/x-www-form-urlencoded; charset=utf-8" },
        service: "iam",
        region: "us-east-1",
      },
      { ...identity, sessionToken: undefined },
      new Date("2015-08-30T12:36:00Z"),
    );
    assert.match(authorization ?? "", /Signature=5d672d79c15b13162d9279b0855cfba6789a8edb4c82c400e06b5924a6f2b5d7$/);
  });
});
