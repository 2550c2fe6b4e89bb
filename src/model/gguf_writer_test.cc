#include "model/gguf_writer.h"

#include <array>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/test_files.h"

namespace quire::model {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::span<const std::byte> AsBytes(std::span<const float> values) {
  return std::as_bytes(values);
}

TEST(GgufWriterTest, WhatIsWrittenIsRead) {
  TemporaryDirectory directory("writer");
  const std::string path = directory.File("m.gguf");
  const std::array<float, 3> vector = {1.0f, 2.0f, 3.0f};
  const std::array<float, 8> matrix = {1, 2, 3, 4, 5, 6, 7, 8};
  GgufWriter writer;
  writer.SetInt("int", 7);
  writer.SetFloat("float", 0.5f);
  writer.SetTrue("bool");
  writer.SetFalse("other");
  writer.SetText("text", "w\xc3\xb6rd");
  writer.SetInts("ints", std::array<int32_t, 2>{-1, 2});
  writer.SetFloats("floats", vector);
  writer.SetTexts("texts", std::array<std::string, 2>{"", "b"});
  writer.Declare("vector", DType::kF32, 0, 3);
  writer.Declare("matrix", DType::kF32, 2, 4);
  ASSERT_TRUE(writer.Open(path).ok());
  ASSERT_TRUE(writer.Append(AsBytes(vector)).ok());
  ASSERT_TRUE(writer.Append(AsBytes(matrix).first(5)).ok());  // pieces of any size
  EXPECT_FALSE(std::filesystem::exists(path));
  ASSERT_TRUE(writer.Append(AsBytes(matrix).subspan(5)).ok());
  ASSERT_TRUE(writer.Finish().ok());

  Result<GgufFile> file = GgufFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_EQ(file->GetInt("int"), 7);
  EXPECT_EQ(file->GetFloat("float"), 0.5);
  EXPECT_EQ(file->GetBool("bool"), true);
  EXPECT_EQ(file->GetBool("other"), false);
  EXPECT_EQ(file->GetString("text"), "w\xc3\xb6rd");
  EXPECT_THAT(*file->GetIntArray("ints"), ElementsAre(-1, 2));
  EXPECT_THAT(*file->GetFloatArray("floats"), ElementsAre(1.0f, 2.0f, 3.0f));
  EXPECT_THAT(*file->GetStringArray("texts"), ElementsAre("", "b"));
  EXPECT_EQ(file->FindTensor("vector")->dimensions, 1);
  Result<StoredTensor> stored = file->Tensor("matrix");
  ASSERT_TRUE(stored.ok());
  EXPECT_EQ(stored->rows, 2);
  EXPECT_EQ(stored->cols, 4);
  EXPECT_EQ(std::memcmp(stored->data, matrix.data(), sizeof(matrix)), 0);
}

TEST(GgufWriterTest, AnUnfinishedFileLeavesNothingBehind) {
  TemporaryDirectory directory("unfinished");
  {
    GgufWriter writer;
    writer.Declare("vector", DType::kF32, 0, 3);
    ASSERT_TRUE(writer.Open(directory.File("m.gguf")).ok());
  }
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
  GgufWriter writer;
  Status opened = writer.Open("/nonexistent/m.gguf");
  ASSERT_FALSE(opened.ok());
  EXPECT_EQ(opened.error().kind, ErrorKind::kIo);
}

void WriteShard(const std::string& path, uint32_t number, std::string_view tensor) {
  const std::array<float, 2> values = {static_cast<float>(number), 1.0f};
  GgufWriter writer;
  writer.SetInt("split.no", number);
  writer.SetInt("split.count", 3);
  writer.SetInt("split.tensors.count", 3);
  writer.Declare(tensor, DType::kF32, 0, 2);
  ASSERT_TRUE(writer.Open(path).ok());
  ASSERT_TRUE(writer.Append(AsBytes(values)).ok());
  ASSERT_TRUE(writer.Finish().ok());
}

TEST(GgufSplitTest, TheFirstShardBringsTheOthers) {
  TemporaryDirectory directory("split");
  const std::string first = directory.File("m-00001-of-00003.gguf");
  WriteShard(first, 0, "a");
  WriteShard(directory.File("m-00002-of-00003.gguf"), 1, "b");
  WriteShard(directory.File("m-00003-of-00003.gguf"), 2, "c");
  Result<GgufFile> file = GgufFile::Open(first);
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_EQ(file->shards(), 3);
  EXPECT_EQ(file->tensors().size(), 3u);
  for (int i = 0; i < 3; ++i) {
    Result<StoredTensor> tensor = file->Tensor(std::string(1, static_cast<char>('a' + i)));
    ASSERT_TRUE(tensor.ok()) << tensor.error().message;
    float value = -1;
    std::memcpy(&value, tensor->data, sizeof(value));
    EXPECT_EQ(value, static_cast<float>(i));
  }

  Result<GgufFile> second = GgufFile::Open(directory.File("m-00002-of-00003.gguf"));
  ASSERT_FALSE(second.ok());
  EXPECT_THAT(second.error().message, HasSubstr("give the first one"));
  std::filesystem::rename(first, directory.File("renamed.gguf"));
  EXPECT_THAT(GgufFile::Open(directory.File("renamed.gguf")).error().message,
              HasSubstr("-00001-of-00003.gguf"));
}

TEST(GgufSplitTest, MissingAndRepeatedShardsAreNamed) {
  TemporaryDirectory directory("broken-split");
  const std::string first = directory.File("m-00001-of-00003.gguf");
  WriteShard(first, 0, "a");
  WriteShard(directory.File("m-00002-of-00003.gguf"), 1, "b");
  EXPECT_THAT(GgufFile::Open(first).error().message, HasSubstr("m-00003-of-00003.gguf"));
  WriteShard(directory.File("m-00003-of-00003.gguf"), 2, "b");
  EXPECT_THAT(GgufFile::Open(first).error().message, HasSubstr("appears in two parts"));
}

}  // namespace
}  // namespace quire::model
