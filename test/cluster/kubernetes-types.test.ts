import assert from "node:assert/strict";
import { globSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { before, describe, it } from "node:test";
import { printSchemas, schemasFile } from "../generate/openapi-schemas.ts";
import { buildTypeFiles, readOpenApiDocuments, typesFolder } from "../generate/openapi-types.ts";
import { needs } from "../parts.ts";

describe(
  "the OpenAPI documents of the newest API server (npm run kubernetes-types reads them)",
  await needs("API server"),
  () => {
    const documents = Promise.withResolvers<Awaited<ReturnType<typeof readOpenApiDocuments>>>();
    before(() => readOpenApiDocuments().then(documents.resolve, documents.reject));

    it("the OpenAPI documents have the types of lib/kubernetes", async () => {
      const published = buildTypeFiles((await documents.promise).types);
      const files = globSync("*/*.ts", { cwd: typesFolder });
      assert.deepEqual(files.sort(), [...published.keys()].sort());
      const differing = await Promise.all(
        files.map(async (file) =>
          (await readFile(join(typesFolder, file), "utf8")) === published.get(file) ? [] : file,
        ),
      );
      assert.deepEqual(differing.flat(), []);
    });

    it("the OpenAPI documents have the schemas by which patches of built-in kinds are merged", async () => {
      assert.equal(await readFile(schemasFile, "utf8"), printSchemas((await documents.promise).schemas));
    });
  },
);
