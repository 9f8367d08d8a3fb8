import assert from "node:assert/strict";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, it } from "node:test";
import { toCredentialsComplaint } from "./credentials.ts";

describe("missing AWS credentials", () => {
  it("missing AWS credentials are reported with what to do, and with the profile's name", async () => {
    const folder = await mkdtemp(join(tmpdir(), "postern-aws-"));
    const [config, credentials] = ["config", "credentials"].map((name) => join(folder, name));
    const files = { AWS_CONFIG_FILE: config, AWS_SHARED_CREDENTIALS_FILE: credentials };
    const report = async (AWS_PROFILE?: string) => {
      const { message, exitCode } = await toCredentialsComplaint(new Error("none"), { ...files, AWS_PROFILE });
      assert.equal(exitCode, 3);
      return message;
    };
    const absent = `there is no AWS profile "work", which AWS_PROFILE names, in ${config} or ${credentials}`;
    try {
      assert.equal(
        await report(),
        "there are no AWS credentials: set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (none)",
      );
      assert.equal(await report("work"), absent);
      await writeFile(String(config), "[profile worker]\n[default]\n");
      assert.equal(await report("work"), absent);
      for (const section of ["[profile work]", " [ work ]"]) {
        await writeFile(String(credentials), `${section}\nregion = eu-west-1\n`);
        assert.equal(await report("work"), 'the AWS profile "work" has no credentials: none');
      }
    } finally {
      await rm(folder, { recursive: true });
    }
  });
});
