// SPDX-License-Identifier: Apache-2.0
#include <deque>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "entrypoint/fetch/aws_services.h"
#include "smp_runtime/core/error.h"
#include "tests/unit/entrypoint/fetch/scripted_client.h"
#include "tests/unit/opt_ml_layout/temporary_folder.h"

namespace entrypoint::fetch {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;
using testing_support::message_of;
using testing_support::read_file;
using testing_support::TemporaryFolder;
using testing_support::write_file;

struct S3Case {
  ScriptedClient client{{}};
  S3Endpoint endpoint{.region = "us-east-1"};
  TemporaryFolder folder{};
  smp::Variables environment{{"AWS_ACCESS_KEY_ID", "A"}, {"AWS_SECRET_ACCESS_KEY", "S3cr3t"}};
  ProfileSettings profile{};
  NotedWaits waits{};
  CredentialChain chain{environment, profile, client, waits.policy};
  S3Options options{};
  S3Client s3{endpoint, chain, client, waits.policy, options};
};

const S3Location kObject{.bucket = "b", .key = "k"};

TEST(S3Client, DownloadsWithASignature) {
  S3Case job{.client = ScriptedClient({answer(503), answer(200, "content")})};

  job.s3.download(kObject, job.folder.path() / "file");

  EXPECT_EQ(read_file(job.folder.path() / "file"), "content");
  const HttpRequest& request = job.client.requests.back();
  EXPECT_EQ(request.url, "https://b.s3.us-east-1.amazonaws.com/k");
  EXPECT_EQ(request.signature->region, "us-east-1");
  EXPECT_EQ(request.signature->service, "s3");
  EXPECT_THAT(request.headers, Contains(StartsWith("x-amz-content-sha256: e3b0c442")));
}

TEST(S3Client, FollowsTheBucketToItsRegion) {
  HttpResponse elsewhere = answer(301, "<Error><Code>PermanentRedirect</Code></Error>");
  elsewhere.headers["x-amz-bucket-region"] = "eu-west-1";
  S3Case job{.client = ScriptedClient({elsewhere, answer(200), answer(200)})};

  job.s3.download(kObject, job.folder.path() / "file");
  job.s3.download(kObject, job.folder.path() / "file");

  EXPECT_EQ(job.client.requests.size(), 3U);
  EXPECT_EQ(job.client.requests[1].url, "https://b.s3.eu-west-1.amazonaws.com/k");
  EXPECT_EQ(job.client.requests[2].signature->region, "eu-west-1");
}

TEST(S3Client, RefusalsNameBucketKeyStatusAndOriginOfTheKeys) {
  S3Case job{.client = ScriptedClient({answer(
                 403, "<Error><Code>AccessDenied</Code><Message>Not you</Message></Error>")})};

  const std::string error =
      message_of([&] { job.s3.download(kObject, job.folder.path() / "file"); });

  EXPECT_THAT(error, StartsWith("download of s3://b/k: bucket b, key k: HTTP status 403 "
                                "AccessDenied: Not you; "));
  EXPECT_THAT(error, HasSubstr("credentials came from variables"));
  EXPECT_EQ(error.find("S3cr3t"), std::string::npos);
}

TEST(S3Client, AdviceFollowsTheCodeOfARefusal) {
  const auto error_of = [](int status, const std::string& code, const std::string& key) {
    S3Case job{.client =
                   ScriptedClient({answer(status, "<Error><Code>" + code + "</Code></Error>")})};
    return message_of([&] { job.s3.download({"b", key}, job.folder.path() / "file"); });
  };
  constexpr const char* kNeedsRights = "the job's role needs s3:GetObject";
  constexpr const char* kNoArchive = "a prefix is no archive";

  EXPECT_THAT(error_of(403, "AccessDenied", "k.tar.gz"), HasSubstr(kNeedsRights));
  for (const char* code : {"RequestTimeTooSkewed", "SignatureDoesNotMatch", "InvalidAccessKeyId"}) {
    EXPECT_THAT(error_of(403, code, "k.tar.gz"), Not(HasSubstr(kNeedsRights))) << code;
  }
  EXPECT_THAT(error_of(403, "RequestTimeTooSkewed", "k"), HasSubstr("set this machine's clock"));
  for (const char* key : {"my/prefix/Train", "code", "code.tar.gz.d/x"}) {
    EXPECT_THAT(error_of(404, "NoSuchKey", key), HasSubstr(kNoArchive)) << key;
  }
  for (const char* key : {"a.tar.gz", "a.tgz", "a.tar.zst"}) {
    EXPECT_THAT(error_of(404, "NoSuchKey", key), HasSubstr("check bucket, key and region")) << key;
  }
  EXPECT_THAT(error_of(404, "NoSuchBucket", "code"), HasSubstr("check bucket, key and region"));
}

TEST(S3Client, WhoseFaultItIsShowsInTheKindOfError) {
  S3Case refused{.client = ScriptedClient({answer(404)})};
  S3Case silent;
  S3Case broken{.client = ScriptedClient({answer(500), answer(500), answer(500), answer(500),
                                          answer(500), answer(500), answer(500), answer(500)})};
  const auto file = [](S3Case& job) { return job.folder.path() / "file"; };

  EXPECT_THROW(refused.s3.download(kObject, file(refused)), smp::ConfigError);
  EXPECT_THROW(broken.s3.download(kObject, file(broken)), smp::HostError);
  EXPECT_THROW(silent.s3.download(kObject, file(silent)), smp::HostError);
}

TEST(S3Client, UploadsAFile) {
  S3Case job{.client = ScriptedClient({answer(200)})};
  write_file(job.folder.path() / "file", "content");

  job.s3.upload(job.folder.path() / "file", kObject);

  EXPECT_EQ(job.client.requests[0].method, "PUT");
  EXPECT_EQ(job.client.requests[0].from_file, job.folder.path() / "file");
  EXPECT_THAT(job.client.requests[0].headers, Contains("x-amz-content-sha256: UNSIGNED-PAYLOAD"));
}

HttpResponse part(const std::string& tag) {
  HttpResponse sent = answer(200);
  sent.headers["etag"] = tag;
  return sent;
}

const std::string kBegun = "<R><UploadId>i/d</UploadId></R>";

TEST(S3Client, UploadsALargeFileInParts) {
  S3Case job{.client = ScriptedClient({answer(200, kBegun), part("\"a\""), answer(503),
                                       part("\"b\""), answer(200, "<R><ETag>c</ETag></R>")}),
             .options = {.part_bytes = 4}};
  write_file(job.folder.path() / "file", "content");

  job.s3.upload(job.folder.path() / "file", kObject);

  std::vector<std::string> sent;
  for (const HttpRequest& request : job.client.requests) {
    sent.push_back(request.method + request.url.substr(request.url.find('?')));
  }
  EXPECT_THAT(sent, ElementsAre("POST?uploads=", "PUT?partNumber=1&uploadId=i%2Fd",
                                "PUT?partNumber=2&uploadId=i%2Fd",
                                "PUT?partNumber=2&uploadId=i%2Fd", "POST?uploadId=i%2Fd"));
  EXPECT_EQ(job.client.requests[1].from_offset, 0);
  EXPECT_EQ(job.client.requests[2].from_offset, 4);
  EXPECT_EQ(job.client.requests[2].from_bytes, 4);
  EXPECT_EQ(job.client.requests[4].body,
            "<CompleteMultipartUpload>"
            "<Part><PartNumber>1</PartNumber><ETag>\"a\"</ETag></Part>"
            "<Part><PartNumber>2</PartNumber><ETag>\"b\"</ETag></Part>"
            "</CompleteMultipartUpload>");
}

TEST(S3Client, AnUploadInPartsThatFailsIsTakenBack) {
  const auto failing = [](std::deque<std::variant<HttpResponse, std::string>> answers) {
    S3Case job{.client = ScriptedClient(std::move(answers)), .options = {.part_bytes = 4}};
    write_file(job.folder.path() / "file", "content");
    const std::string error =
        message_of([&] { job.s3.upload(job.folder.path() / "file", kObject); });
    EXPECT_EQ(job.client.requests.back().method, "DELETE");
    EXPECT_TRUE(job.client.requests.back().url.ends_with("?uploadId=i%2Fd"));
    return error;
  };
  const HttpResponse refused = answer(403, "<Error><Code>AccessDenied</Code></Error>");
  // S3 says so in an answer that has begun well.
  const HttpResponse late = answer(200, "<Error><Code>InternalError</Code></Error>");

  EXPECT_THAT(failing({answer(200, kBegun), part("a"), refused, answer(204)}),
              HasSubstr("HTTP status 403 AccessDenied"));
  EXPECT_THAT(failing({answer(200, kBegun), part("a"), part("b"), late, answer(204)}),
              HasSubstr("its parts were not put together: InternalError"));
  EXPECT_THAT(failing({answer(200, kBegun), part("a"), refused, answer(404)}),
              HasSubstr("HTTP status 403 AccessDenied"));
}

TEST(S3Client, ListsKeysOverSeveralAnswers) {
  S3Case job{.client = ScriptedClient(
                 {answer(200,
                         "<L><IsTruncated>true</IsTruncated><Contents><Key>p/a&amp;b&#x21;"
                         "</Key></Contents><Contents><Key>p/c</Key></Contents>"
                         "<NextContinuationToken>n&lt;/1</NextContinuationToken></L>"),
                  answer(200,
                         "<L><IsTruncated>false</IsTruncated>"
                         "<Contents><Key>p/d</Key></Contents></L>")})};

  EXPECT_THAT(job.s3.list({.bucket = "b", .key = "p/"}), ElementsAre("p/a&b!", "p/c", "p/d"));

  const std::string base = "https://b.s3.us-east-1.amazonaws.com/?";
  EXPECT_EQ(job.client.requests[0].url, base + "list-type=2&max-keys=250&prefix=p%2F");
  EXPECT_EQ(job.client.requests[1].url,
            base + "continuation-token=n%3C%2F1&list-type=2&max-keys=250&prefix=p%2F");
}

TEST(S3Client, RemovesAnObject) {
  S3Case job{.client = ScriptedClient({answer(204)})};

  job.s3.remove(kObject);

  EXPECT_EQ(job.client.requests[0].method, "DELETE");
  EXPECT_EQ(job.client.requests[0].url, "https://b.s3.us-east-1.amazonaws.com/k");
}

TEST(S3Client, AnObjectThatIsNotThereIsAnErrorOfItsOwn) {
  const auto download = [](const std::string& code) {
    S3Case job{.client = ScriptedClient({answer(404, "<Error><Code>" + code + "</Code></Error>")}),
               .options = {.fetches_archives = false}};
    job.s3.download(kObject, job.folder.path() / "file");
  };

  EXPECT_THROW(download("NoSuchKey"), NoSuchObject);
  EXPECT_THAT([&] { download("NoSuchBucket"); }, ::testing::ThrowsMessage<smp::ConfigError>(
                                                     HasSubstr("check bucket, key and region")));
}

TEST(XmlText, IsWhatStandsBetween) {
  EXPECT_EQ(xml_text("<Error><Code>A</Code></Error>", "Code"), "A");
  EXPECT_EQ(xml_text("<Code></Code>", "Code"), "");
  EXPECT_EQ(xml_text("</Code><Code>", "Code"), "");
  EXPECT_EQ(xml_text("", "Code"), "");
}

}  // namespace
}  // namespace entrypoint::fetch
